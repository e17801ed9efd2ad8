"""Formulas as MathML, which browsers render natively: a report needs neither scripts nor a network for its formulas.

latex2mathml does the work; this module adds what it leaves out or what browsers no longer support, and a math font:
without one, which many machines lack, brackets and roots do not stretch.
"""

import base64
import re
import unicodedata
from html import unescape
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

FONT = Path(__file__).with_name("template") / "math.woff2"
# Environments that latex2mathml knows under another name; `align` itself would number the lines.
SYNONYMS = dict.fromkeys(("aligned", "align", "split", "gathered", "gather", "gather*"), "align*")
REWRITES = (
    (r"\\(begin|end)\{equation\*?\}|\\label\{[^{}]*\}|\\nonumber", ""),
    (r"\\tag\{([^{}]*)\}", r"\\qquad\\text{(\1)}"),
    (r"\\operatorname\*?\{arg\\[,;: ]\s*(min|max)\}", r"\\arg\1"),
    (r"\\arg\\(min|max)(?![a-zA-Z])", r"\\arg\1"),
    (r"\\(?:operatorname\*?|mathop)\{(\\math\w+\{\w+\})\}", r"\1"),
    (r"\\mathbbm?\{1\}", "𝟙"),
    (r":=", r"\\coloneqq "),
)
# For sums and minima, whose limits go above and below in display style.
LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
LIMITED = (*LIMITS, *LIMITS.values())
SCRIPTED = ("msub", "msup", "msubsup", "munder", "munderover")
# MathML Core supports only mathvariant="normal"; other alphabets must use Unicode's mathematical letters.
ALPHABETS = {
    "bold": ("BOLD",),
    "italic": ("ITALIC",),
    "bold-italic": ("BOLD ITALIC", "BOLD"),
    "sans-serif": ("SANS-SERIF",),
    "monospace": ("MONOSPACE",),
}


def to_mathml(tex: str, *, display: bool = False) -> str:
    """One `<math>` element for the TeX formula `tex`, with the TeX source as its `alttext`.

    `display`: as a displayed formula. ValueError names a formula or a command that cannot be rendered.
    """
    from latex2mathml.converter import convert_to_element

    source = " ".join(tex.split())
    try:
        math = convert_to_element(_plain(source), display="block" if display else "inline")
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"cannot render the formula ${source}$ ({reason}): correct its TeX") from error
    math.attrib.pop("xmlns", None)
    math.set("alttext", source)
    for element in math.iter():
        _adapt(element, source)
    for element in math.iter():
        _space(element)
    return tostring(math, encoding="unicode", short_empty_elements=False)


def add_font(page: str) -> str:
    """The HTML `page` with the math font in its head, if it contains a formula."""
    if "<math" not in page:
        return page
    data = base64.b64encode(FONT.read_bytes()).decode()
    style = f'<style>@font-face {{ font-family: "Report Math"; src: url(data:font/woff2;base64,{data}) }}</style>'
    return page.replace("</head>", f"{style}\n</head>", 1)


def _plain(tex: str) -> str:
    """The formula in commands that latex2mathml supports."""
    for pattern, replacement in REWRITES:
        tex = re.sub(pattern, replacement, tex)
    return re.sub(r"\\(begin|end)\{(\w+\*?)\}", lambda m: rf"\{m[1]}{{{SYNONYMS.get(m[2], m[2])}}}", tex)


def _adapt(element: Element, source: str) -> None:
    """Adapt one element for current browsers: plain characters, Unicode alphabets, no TeX command left."""
    text = unescape(element.text or "")
    if acting := {"href", "style", "class", "id"} & element.attrib.keys():
        raise ValueError(f"the formula ${source}$ sets {', '.join(sorted(acting))}: a formula neither links nor styles")
    if text.startswith("\\") and len(text) > 1:
        raise ValueError(f"the formula ${source}$ has the unknown command {text}: write it in plain TeX")
    if element.tag == "mi" and len(text) == 1 and (text in "~:" or _is_operator(text)):
        element.tag, text = "mo", {"~": "∼"}.get(text, text)
    if element.tag in LIMITS and len(element) and _takes_limits(element[0]):
        element.tag = LIMITS[element.tag]  # inline, browsers move the limits back to the side
    if element.tag == "mspace" and element.get("width") == "negativethinmathspace":
        element.set("width", "-0.167em")
    if element.tag == "mover" and len(element) == 2 and unescape(element[1].text or "") in ("~", "^", "¯", "―", "˙"):
        element.set("accent", "true")
    variant = element.get("mathvariant", "normal")
    if variant != "normal":
        del element.attrib["mathvariant"]
        text = "".join(_letter(character, variant) for character in text)
    element.text = text or None


def _space(row: Element) -> None:
    """Apply TeX's spacing to the children of `row` where browsers differ."""
    for place, child in enumerate(row):
        text = child.text or ""
        if child.tag == "mo" and text in ("|", "‖", "/"):  # symmetric brackets and the slash
            child.attrib.update(lspace="0", rspace="0")
        core = child[0] if child.tag in LIMITED and len(child) else child
        if core.tag == "mo" and len(core.text or "") > 1 and core.text[0].isalpha():  # a function: log, clip, arg min
            following = "".join(row[place + 1].itertext()) if place + 1 < len(row) else ""
            core.set("lspace", "0.167em" if place else "0")
            core.set("rspace", "0" if following[:1] in ("(", "[", "") else "0.167em")
    if row.tag in SCRIPTED:
        for operator in (o for script in row[1:] for o in script.iter("mo")):
            operator.attrib.update(lspace="0", rspace="0")


def _is_operator(character: str) -> bool:
    """Whether `character` is a relation or binary operator (±, ∼), which is spaced from its neighbours."""
    return unicodedata.category(character) == "Sm" and character not in "∞∂∇"


def _takes_limits(base: Element) -> bool:
    return base.tag == "mo" and (unescape(base.text or "") in tuple("∑∏⋃⋂") or base.get("movablelimits") == "true")


def _letter(character: str, variant: str) -> str:
    """`character` in the mathematical alphabet `variant`, or unchanged if Unicode has none."""
    name = unicodedata.name(character, "").replace("LATIN ", "").replace("GREEK ", "").replace("LETTER ", "")
    for alphabet in ALPHABETS.get(variant, ()):
        try:
            return unicodedata.lookup(f"MATHEMATICAL {alphabet} {name}")
        except KeyError:
            continue
    return character
