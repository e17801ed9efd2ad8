"""Formulas as MathML, which every browser draws by itself: a report needs no script and no network for its mathematics.

latex2mathml does the work; here are the few things that it leaves out or that browsers no longer read, and the font:
without a mathematical one, which many machines lack, brackets and roots do not grow.
"""

import base64
import re
import unicodedata
from html import unescape
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

FONT = Path(__file__).with_name("template") / "math.woff2"
# Environments that latex2mathml knows under another name; `align` itself would number its lines anew.
SYNONYMS = dict.fromkeys(("aligned", "align", "split", "gathered", "gather", "gather*"), "align*")
REWRITES = (
    (r"\\(begin|end)\{equation\*?\}|\\label\{[^{}]*\}|\\nonumber", ""),
    (r"\\tag\{([^{}]*)\}", r"\\qquad\\text{(\1)}"),
    (r"\\operatorname\*?\{arg\\[,;: ]\s*(min|max)\}", r"\\arg\1"),
    (r"\\(?:operatorname\*?|mathop)\{(\\math\w+\{\w+\})\}", r"\1"),
    (r"\\mathbbm?\{1\}", "𝟙"),
    (r":=", r"\\coloneqq "),
)
# Where a sum or a minimum carries its limits in display style.
LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
LIMITED = (*LIMITS, *LIMITS.values())
SCRIPTED = ("msub", "msup", "msubsup", "munder", "munderover")
# MathML Core keeps only mathvariant="normal"; every other alphabet is a matter of Unicode's own letters.
ALPHABETS = {
    "bold": ("BOLD",),
    "italic": ("ITALIC",),
    "bold-italic": ("BOLD ITALIC", "BOLD"),
    "sans-serif": ("SANS-SERIF",),
    "monospace": ("MONOSPACE",),
}


def to_mathml(tex: str, *, display: bool = False) -> str:
    """One `<math>` element for the TeX formula `tex`, with the TeX itself as its `alttext`.

    `display`: on a line of its own. ValueError names a formula or a command that cannot be drawn.
    """
    from latex2mathml.converter import convert_to_element

    source = " ".join(tex.split())
    try:
        math = convert_to_element(_plain(source), display="block" if display else "inline")
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"cannot draw the formula ${source}$ ({reason}): correct its TeX") from error
    math.attrib.pop("xmlns", None)
    math.set("alttext", source)
    for element in math.iter():
        _mend(element, source)
    for element in math.iter():
        _space(element)
    return tostring(math, encoding="unicode", short_empty_elements=False)


def add_font(page: str) -> str:
    """The HTML `page` with the mathematical font in its head, if it holds a formula."""
    if "<math" not in page:
        return page
    data = base64.b64encode(FONT.read_bytes()).decode()
    style = f'<style>@font-face {{ font-family: "Report Math"; src: url(data:font/woff2;base64,{data}) }}</style>'
    return page.replace("</head>", f"{style}\n</head>", 1)


def _plain(tex: str) -> str:
    """The formula in the words that latex2mathml knows."""
    for pattern, replacement in REWRITES:
        tex = re.sub(pattern, replacement, tex)
    return re.sub(r"\\(begin|end)\{(\w+\*?)\}", lambda m: rf"\{m[1]}{{{SYNONYMS.get(m[2], m[2])}}}", tex)


def _mend(element: Element, source: str) -> None:
    """One element for today's browsers: plain characters, Unicode alphabets, no command left over."""
    text = unescape(element.text or "")
    if text.startswith("\\") and len(text) > 1:
        raise ValueError(f"the formula ${source}$ has the unknown command {text}: write it in plain TeX")
    if element.tag == "mi" and len(text) == 1 and (text in "~:" or _is_operator(text)):
        element.tag, text = "mo", {"~": "∼"}.get(text, text)
    if element.tag in LIMITS and len(element) and _takes_limits(element[0]):
        element.tag = LIMITS[element.tag]  # browsers move the limits to the side again in running text
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
    """TeX's spacing of the children of `row`, where a browser's differs from it."""
    for place, child in enumerate(row):
        text = child.text or ""
        if child.tag == "mo" and text in ("|", "‖", "/"):  # a bracket that looks alike on both sides, and the slash
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
    """Whether `character` relates or joins its neighbours (±, ∼), and so stands apart from them."""
    return unicodedata.category(character) == "Sm" and character not in "∞∂∇"


def _takes_limits(base: Element) -> bool:
    return base.tag == "mo" and (unescape(base.text or "") in tuple("∑∏⋃⋂") or base.get("movablelimits") == "true")


def _letter(character: str, variant: str) -> str:
    """`character` in the mathematical alphabet `variant`, or as it is where Unicode has none."""
    name = unicodedata.name(character, "").replace("LATIN ", "").replace("GREEK ", "").replace("LETTER ", "")
    for alphabet in ALPHABETS.get(variant, ()):
        try:
            return unicodedata.lookup(f"MATHEMATICAL {alphabet} {name}")
        except KeyError:
            continue
    return character
