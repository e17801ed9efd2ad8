r"""What a response answers, in a wording that math-verify reads: the last \boxed{}, cleaned up, and what is text."""

import re
import unicodedata
from functools import cache

BOX = re.compile(r"\\(?:boxed|fbox)\s*(?P<rest>.*)", re.DOTALL)
BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
EMPTY = re.compile(r"(?:\s|\\[,;:! ]|~|\$|\\text\{\s*\}|\{\}|\\q?quad(?![a-z]))*")
MINUS, CURRENCY = dict.fromkeys("‐‑‒–—−－", "-"), dict.fromkeys("£€¥₹")
COMMANDS = {
    "°": "^\\circ",
    "×": "\\times",
    "·": "\\cdot",
    "∞": "\\infty",
    "∅": "\\emptyset",
    "∪": "\\cup",
    "√": "\\sqrt",
}
SIGNS = str.maketrans({**MINUS, **CURRENCY, **{sign: f"{command} " for sign, command in COMMANDS.items()}})
WRAP = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|operatorname|mbox)\s*\{([^{}]*)\}")
NUMBER = r"(-?(?:\d[\d,]*(?:\.\d+)?|\.\d+|\\[dtc]?frac\{\d+\}\{\d+\}|\d+/\d+)(?:\\times 10\^\{\d+\})?)"
NO_UNITS = r"(?!(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|mod|and|not|but|more|less|hundred|dozen)\b)"
PERCENT = r"(?<=[\d})])(?:\s|\\[,;:! ])*(?:\\?%|\\text\s*\{\s*(?:\\?%|per ?cent)\s*\}|per ?cent\b)"
BASED = re.compile(r"\(?(?=.*\d)([\dA-Za-z]+)\)?_\s*\{?\s*(?:\\text\s*\{)?\s*(?:base\s*)?(\d+|[a-z]+)\s*\}*")
BASES = dict(two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10, twelve=12, sixteen=16)
SEPARATOR = re.compile(r"\s*(?:,|;|\b(?:and|or)\b)\s*")
NAME = re.compile(r"[^\W\d_]{2,}|[^\W\d_]{3,}\d+")
FORMULA = re.compile(r"(?:pi|infinity|inf|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|exp|sqrt)[a-z]?\d*")
VARIABLE = re.compile(r"(?:\\(?:cdot|times) *|(?<=[\d}\s]))([a-z]|ab|bc)$")  # which math-verify takes for a unit
POWERS = (("thousand", 3), ("million", 6), ("billion", 9), ("trillion", 12))
CLEAN = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"^\s*\*\*(.*?)\*\*\s*$", r"\1"),
        (r"\\(?:textcolor|color)\s*\{[^{}]*\}\s*(?:\{((?:[^{}]|\{[^{}]*\})*)\})?", r"\1"),
        (r"\\(?:underline|bm|boldsymbol|mathbf|textbf|text)\s*\{\s*([-+\d.,]+)\s*\}", r"\1"),
        (r"(?:[.,;:\s]|\\(?:[,;:! \\]|$))+(\$?)$", r"\1"),
        (r"\\(?:pounds|euro)(?![a-z])", ""),
        (r"\\(?:varnothing|O)(?![A-Za-z])", r"\\emptyset"),
        (PERCENT, ""),
        *(
            (rf"(?<=\d)\s*(?:\\text\{{)?\s*{word}\s*\}}?(?![a-z])", rf"\\times 10^{{{power}}}")
            for word, power in POWERS
        ),
        (rf"^{NUMBER}(?:\s|\\ |~)+{NO_UNITS}[A-Za-z]{{3,}}(?:\s+[A-Za-z]+)*$", r"\1"),
        (r"(?<=\d)\s*x\s*(?=10\s*\^)", r"\\times "),
        (r"\^\s*(-\d+)", r"^{\1}"),
        (r"\s*([-+=])\s*", r"\1"),
    )
]
GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\\[,;:! ]|[ ~\u00a0\u2009\u202f])\d{3})+(?!\d)")
REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{?(\d+)\}?")
VULGAR = re.compile(r"[\u00bc-\u00be\u2150-\u215e]")
RAISED = re.compile(r"[⁻⁰¹²³⁴-⁹]+")


def finished(response: str) -> bool | None:
    r"""Whether the last \boxed{} or \fbox{} has an answer, being neither empty nor cut off; None if there is no box."""
    start = max(response.rfind(r"\boxed"), response.rfind(r"\fbox"))
    if start < 0:
        return None
    rest, depth = BOX.match(response, start)["rest"], 0
    if not rest.startswith("{"):
        return bool(rest)
    for brace in BRACES.finditer(rest):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0:
            return EMPTY.fullmatch(rest, 1, brace.start()) is None
    return False


def cleaned(answer: str) -> str:
    """The same answer as math-verify can read it: without a full stop, emphasis, colour, currency, percent signs and
    units in words, and with signs of Unicode, thin spaces within numbers and repeating decimals in LaTeX."""
    text = VULGAR.sub(lambda sign: "\\frac{{{}}}{{{}}}".format(*_plain(sign).split("⁄")), answer)
    text = RAISED.sub(lambda power: f"^{{{_plain(power)}}}", text)
    text = re.sub(r"\s+", " ", text.translate(SIGNS)).strip()
    text = GROUPED.sub(lambda number: re.sub(r"\D", "", number[0]), text)
    text = REPEATING.sub(_fraction, text)
    for pattern, replacement in CLEAN:
        text = pattern.sub(replacement, text).strip()
    return text


def with_variable(truth: str, answer: str) -> tuple[str, str]:
    """Both with a product for the letter after a number, as in 5t, where the truth has one."""
    if not VARIABLE.search(truth):
        return truth, answer
    return VARIABLE.sub(r"\\cdot(\1)", truth), VARIABLE.sub(r"\\cdot(\1)", answer)


def unboxed(response: str) -> str:
    """A response without a box, without its percent signs."""
    return re.sub(PERCENT, "", response.translate(SIGNS))


def _plain(signs: re.Match) -> str:
    return unicodedata.normalize("NFKC", signs[0])


@cache
def matchable(truth: str) -> bool:
    r"""Whether a response can give it: \boxed{truth} has an answer."""
    return bool(finished(rf"\boxed{{{truth}}}") and cleaned(truth))


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
    right, given = ([each.casefold() for each in names(text.rpartition("=")[2])] for text in (truth, answer))
    return sorted(right) == sorted(given) or (len(right) == 1 and right[0] == "".join(given))


def same_base(truth: str, answer: str) -> bool | None:
    """Whether two numerals of which one has a base, as 4343_6, are the same, also in their bases where both have one;
    None if neither has."""
    found = [BASED.fullmatch(text.rpartition("=")[2].strip()) for text in (truth, answer)]
    bases = {str(BASES.get(each[2], each[2])) for each in found if each}
    numerals = {
        (each[1] if each else text).casefold().lstrip("0") for each, text in zip(found, (truth, answer), strict=True)
    }
    return len(bases) == len(numerals) == 1 if bases else None


def _product(letters: str) -> bool:
    return letters.islower() and (len(letters) == 2 or "".join(sorted(letters)) == letters)
