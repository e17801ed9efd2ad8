r"""What a response answers, in a wording that math-verify reads: the last \boxed{}, cleaned up, and what is text."""

import re
import unicodedata
from functools import cache, partial

BOX = re.compile(r"\\(?:boxed|fbox)\s*")
WORD = re.compile(r"[^\s{}$]*(?:\{[^{}]*\})*")
BETWEEN = re.compile(r"(?:[\s,;:$&~\\{}()]|\b(?:and|or|text|quad|qquad)\b|\b[A-Za-z](?:_\{?\w\}?|\d)?\s*=)*")
BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
EMPTY = re.compile(r"(?:\s|\\[,;:! ]|~|\$|\\text\{\s*\}|\{\}|\\q?quad(?![a-z]))*")
MINUS, CURRENCY = dict.fromkeys("‐‑‒–—−", "-"), dict.fromkeys("£€¥₹")
COMMANDS = {"°": r"^\circ", "º": r"^\circ", "×": r"\times", "·": r"\cdot", "∞": r"\infty", "∅": r"\emptyset"}
COMMANDS |= {"∪": r"\cup", "√": r"\sqrt", "∈": r"\in", "≈": r"\approx"}
SIGNS = str.maketrans({**MINUS, **CURRENCY, "⁄": "/", **{sign: f"{command} " for sign, command in COMMANDS.items()}})
WRAP = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|operatorname|mbox)\s*\{([^{}]*)\}")
NUMBER = r"(-?(?:\d[\d,]*(?:\.\d+)?|\.\d+|\\[dtc]?frac\{\d+\}\{\d+\}|\d+/\d+)(?:\\times 10\^\{\d+\})?)"
NUMERAL = r"(?<![\dA-Za-z])\(?((?=[A-F]*\d)[\dA-F]+)\)?"
UNIT = r"(?:[A-Za-z]{3,}(?:\s+[A-Za-z]+)*|[ckm]m(?:\^\{?[23]\}?)?|k?m/(?:s|h)(?:\^\{?2\}?)?)"
NO_UNITS = r"(?!(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|mod|and|not|but|more|less|hundred|dozen)\b)"
PERCENT = r"(?<=[\d})])(?:\s|~|\\[,;:! ])*(?:\\?%|\\text\s*\{\s*(?:\\?%|per ?cent)\s*\}|per ?cent\b)"
BASED = re.compile(r"\(?(?=.*\d)([\dA-Za-z]+)\)?(?:\\,)?_\s*\{?\s*(?:\\text\s*\{)?\s*(?:base\s*)?(\d+|[a-z]+)\s*\}*")
ASSIGNED = re.compile(r"^[A-Za-z]\w*\s*=\s*")
BASES = dict(two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10, twelve=12, sixteen=16)
SEPARATOR = re.compile(r"\s*(?:,|;|\b(?:and|or)\b)\s*")
NAME = re.compile(r"[^\W\d_]{2,}|[^\W\d_]{3,}\d+")
FORMULA = re.compile(r"(?:pi|infinity|inf|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|exp|sqrt)[a-z]?\d*")
VARIABLE = re.compile(r"(?:\\(?:cdot|times) *|(?<=[\d}\s]))([a-z]|ab|bc)$")  # which math-verify takes for a unit
CHOICE = re.compile(r"\s*(?:(?:option|choice)\s+)?\(?([A-Z])(?:[).:]+(?:\s.*)?)?", re.IGNORECASE | re.DOTALL)
FACTORS = dict(dozen="12") | {
    word: f"10^{{{power}}}" for word, power in dict(hundred=2, thousand=3, million=6, billion=9, trillion=12).items()
}
ORDINAL = r"\s*(?:st|nd|rd|th)\s*"
RAISED_ORDINAL = rf"\\(?:text|textrm|mathrm)\s*\{{{ORDINAL}\}}"
SAID_AND = r"(?<=[\d)}])\s*\\text\s*\{(?!\s*(?:and|or)\s*\})[^{}]*\b(?:and|or)\b[^{}]*\}\s*"
NAMED = re.compile(r"(?<![\w\\}{])[A-Za-z](?:_\{?\w+\}?)?(?:\([^()=]*\))?\s*=(?!=)\s*")
CLEAN = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\?\$|\\(?:displaystyle|large|bf|bfseries)(?![A-Za-z])", ""),
        (r"^\s*(\*\*|__|[*`])(.*?)\1\s*$", r"\2"),
        (r"\\(?:textcolor|colorbox|color)\s*\{[^{}]*\}\s*(?:\{((?:[^{}]|\{[^{}]*\})*)\})?", r"\1"),
        (r"\\(?:underline|bm|boldsymbol|mathbf|textbf|text)\s*\{\s*([-+\d.,]+)\s*\}|\{([-+]?)\}", r"\1\2"),
        (r"(?<![.,;:\s])(?:[.,;:。\s]|\\(?:[,;:! \\]|$))+$", ""),
        (r"(?i)^(?:\\text\s*\{)?\s*(?:the |final )*answer(?: is|:)[\s:}]*|^\\approx(?![A-Za-z])", ""),
        (r"\\(?:pounds|euro)(?![a-z])", ""),
        (r"\\(?:varnothing|O)(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset"),
        (r"^\\\{\s*[a-z]\s*(?::|\||\\mid)(.*)\\\}$", r"\1"),
        (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<=\d)\s*(?:\{\})?\s*(?:\^\s*(?:o|\{o\}|\{\\text\{o\}\})|\\degree)(?![A-Za-z])", r"^\\circ"),
        (PERCENT, ""),
        (rf"{NUMERAL}(?:\\,)?(?:_\{{\((\d+)\)\}}|\s*(?:\\text\s*\{{\s*)?\(?base[ \-}}]*(\w+)\)?\s*\}}?)", r"\1_{\2\3}"),
        *(
            (rf"(?<=\d)\s*(?:\\text\{{)?\s*{word}s?\s*\}}?(?![a-z])", rf"\\times {factor}")
            for word, factor in FACTORS.items()
        ),
        (rf"(?<=\d)\s*(?:\^?\s*{RAISED_ORDINAL}|\^\s*\{{\s*(?:{RAISED_ORDINAL}|{ORDINAL})\}})", ""),
        (SAID_AND, ", "),
        (r"\\(?:text|mathrm)\s*\{\s*([ei])\s*\}", r"\1"),
        (r"\bnp\.(?=[a-z])", r"\\"),
        (r"(?<=\d)\.(?=\s*/)", ""),
        (rf"^{NUMBER}(?:\s|\\ |~)+{NO_UNITS}{UNIT}$", r"\1"),
        (r"(?<=\d)\s*x\s*(?=10\s*\^)", r"\\times "),
        (r"^(-?\d+) (\d+)/(\d+)$", r"\1\\frac{\2}{\3}"),
        (r"\^\s*(-\d+)", r"^{\1}"),
        (r"\s*([-+=])\s*", r"\1"),
        (r"^(-?[\d./]+)=([A-Za-z])$", r"\2=\1"),
    )
]
SYMBOLS = [  # letters that math-verify takes for a constant, without their index or power, or does not read
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<![A-Za-z\\])([A-Za-z])\(0\)", r"\1_{0}"),
        (r"(?<![A-Za-z\\])I(?![A-Za-z])", r"\\Upsilon "),
        (r"(?<![A-Za-z\\])E(?=_)", r"\\varpi "),
        (r"(?<![A-Za-z\\])e(?=_)", r"\\varsigma "),
        (r"\\gamma(?=\^)", r"\\gamma "),
        (r"_\s*\{?\\odot\s*\}?", "_{odot}"),
    )
]
SAID = re.compile(r"\banswers?(?: is| are)?\s*:|\banswers? (?:is|are)\b", re.IGNORECASE)
GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\\[,;:! ]|[ ~'’])\d{3})+(?!\d)")
REPEATING = re.compile(r"(?<!\d)(\d{0,30})\.(\d{0,30})\\(?:overline|bar|dot)\s*\{?(\d{1,30})(?!\d)\}?")
VULGAR, RAISED, LOWERED = (re.compile(signs) for signs in ("[\u00bc-\u00be\u2150-\u215e]", "[⁻⁰¹²³⁴-⁹]+", "[₀-₉]+"))


def boxed(response: str) -> str | None:
    r"""The content of the last \boxed{} or \fbox{}, after those of the boxes before it if nothing but "and", commas and
    the like stands between; "" if the last one is empty or cut off, None if there is none."""
    contents, before = [], len(response)
    while (start := max(response.rfind(r"\boxed", 0, before), response.rfind(r"\fbox", 0, before))) >= 0:
        content, end = content_of(response, BOX.match(response, start).end())
        if contents and not (content and BETWEEN.fullmatch(response, end, before)):
            break
        if not content:
            return ""
        contents = [content, *contents] if contents[:1] != [content] else contents
        before = start
    return ", ".join(contents) if contents else None


def content_of(text: str, start: int) -> tuple[str, int]:
    """What is in the braces that open at `start`, or else the next word, and its end; "" if it is empty or cut off."""
    if text[start : start + 1] != "{":
        word = WORD.match(text, start)
        return word[0], word.end()
    depth = 0
    for brace in BRACES.finditer(text, start):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0:
            empty = EMPTY.fullmatch(text, start + 1, brace.start())
            return "" if empty else text[start + 1 : brace.start()], brace.end()
    return "", len(text)


def cleaned(answer: str) -> str:
    """The same answer as math-verify can read it: without a full stop, emphasis, colour, currency, percent signs and
    units in words, and with signs of Unicode, thin spaces within numbers and repeating decimals in LaTeX."""
    text = VULGAR.sub(lambda sign: "\\frac{{{}}}{{{}}}".format(*_plain(sign[0]).split("⁄")), answer)
    text = RAISED.sub(lambda power: f"^{{{_plain(power[0])}}}", text)
    text = _plain(LOWERED.sub(lambda index: f"_{{{_plain(index[0])}}}", text.translate(SIGNS)))
    text = re.sub(r"\s+", " ", text).strip()
    text = GROUPED.sub(lambda number: re.sub(r"\D", "", number[0]), text)
    text = REPEATING.sub(_fraction, text)
    before = None
    while text != before:  # one wrapping may be within another; each pass but the last shortens it
        before = text
        if text.startswith("{") and content_of(text, 0)[1] == len(text):
            text = text[1:-1]
        for pattern, replacement in CLEAN:
            text = pattern.sub(replacement, text).strip()
    return text


def alike(truth: str, answer: str) -> tuple[str, str]:
    """Both in one form: with a product for the letter after a number, as in 5t, where the truth has one; a choice, as
    (C), without what stands next to it; without the names of values, as in a = 2, b = 3, where the truth has none."""
    if "=" not in truth:
        answer = NAMED.sub("", answer)
    if right := CHOICE.fullmatch(WRAP.sub(r"\1", truth)):
        given = CHOICE.fullmatch(WRAP.sub(r"\1", answer))
        return right[1], given[1] if given else answer
    if not VARIABLE.search(truth):
        return truth, answer
    return VARIABLE.sub(r"\\cdot(\1)", truth), VARIABLE.sub(r"\\cdot(\1)", answer)


def symbols(answer: str) -> str:
    """The same formula with letters that math-verify reads as letters: I and E_1 as in a current and an energy."""
    for pattern, replacement in SYMBOLS:
        answer = pattern.sub(replacement, answer)
    return answer


def squeezed(answer: str) -> str:
    """Its wording without spaces, but for those within numbers, and without braces around a raised or lowered sign."""
    return re.sub(r"([_^])\{(\w)\}", r"\1\2", re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", answer))


def unboxed(response: str) -> list[str]:
    """A response without a box: what follows its last "answer is" or "answer:", if it has one, and the whole, both
    without percent signs."""
    text = re.sub(PERCENT, "", response.translate(SIGNS))
    return [text[at.end() :] for at in [*SAID.finditer(text)][-1:]] + [text]


_plain = partial(unicodedata.normalize, "NFKC")


@cache
def matchable(truth: str) -> bool:
    r"""Whether a response can give it: \boxed{truth} has an answer."""
    return bool(cleaned(boxed(rf"\boxed{{{truth}}}") or ""))


def _fraction(decimal: re.Match) -> str:
    whole, once, period = decimal.groups()
    below = (10 ** len(period) - 1) * 10 ** len(once)
    return rf"\frac{{{int(whole + once + period) - int(whole + once or 0)}}}{{{below}}}"


def names(answer: str) -> list[str]:
    """Its parts between commas, without LaTeX's text commands, spaces, hyphens and quotes."""
    return [re.sub(r"[-\s~'\"().!]|\\ ", "", part) for part in SEPARATOR.split(WRAP.sub(r" \1 ", answer).strip())]


def is_text(truth: str) -> bool:
    r"""Whether a truth is words or orders such as BCA, perhaps with a number (June 20), and no formula: in \text{}, or
    letters other than two small ones or those in the alphabet's order, which are products (xy, abc)."""
    parts, bare = names(truth), not WRAP.search(truth)
    if bare and any(FORMULA.fullmatch(each) for each in parts):
        return False
    return all(NAME.fullmatch(each) and not (bare and _product(each)) for each in parts)


def same_text(truth: str, answer: str) -> bool:
    """Whether an answer gives a truth's words, in any order if commas separate them; case does not matter."""
    right, given = ([each.casefold() for each in names(ASSIGNED.sub("", text))] for text in (truth, answer))
    return sorted(right) == sorted(given) or (len(right) == 1 and right[0] == "".join(given))


def same_base(truth: str, answer: str) -> bool | None:
    """Whether two numerals of which one has a base, as 4343_6, are the same, also in their bases where both have one;
    None if neither has."""
    found = [BASED.fullmatch(ASSIGNED.sub("", text)) for text in (truth, answer)]
    bases = {str(BASES.get(each[2], each[2])) for each in found if each}
    numerals = {
        (each[1] if each else text).casefold().lstrip("0") for each, text in zip(found, (truth, answer), strict=True)
    }
    return len(bases) == len(numerals) == 1 if bases else None


def _product(letters: str) -> bool:
    return letters.islower() and (len(letters) == 2 or "".join(sorted(letters)) == letters)
