"""How deeply the tags of a piece of HTML may be nested, by a count that errs on the side of too much.

What parses HTML takes time, or even room, that grows with the square of the tags that are open at once: 90 kB of
unclosed `<b>`, each with a class of its own, become 164 MB where paragraphs begin, and 100,000 nested `<div>` take
minutes. So a piece that may nest more than `DEEPEST` is not parsed.
"""

import re

from repro.report.safe import TAGS

DEEPEST = 250
VOID = {"br", "col", "hr", "img", "source", "wbr"}
RAW = {"script", "style"}  # up to their end, all in them is text; but not in a formula
BLANK = r"[ \t\n\r\f]"  # to HTML, no other character is
# An opening or closing tag, or a comment, which means the same wherever it stands.
PLAIN = re.compile(
    rf"""<([a-z][a-z0-9-]*)(?:{BLANK}+[^\s"'<>/=]+(?:=(?:"[^"<>]*"|'[^'<>]*'|[^\s"'<>=`]+))?)*{BLANK}*/?>"""
    rf"""|</([a-z][a-z0-9-]*){BLANK}*>|<!--(?!-)[^<>]*-->""",
    re.IGNORECASE | re.ASCII,
)
MARK = re.compile("<[a-z/!?]", re.IGNORECASE | re.ASCII)  # any of these begins at one


def most_open(html: str) -> int:
    """At least how many tags of `html` are open at once, but for those that HTML itself opens.

    A closing tag counts if it closes the tag that was opened last; from the first one that does not, or from the first
    mark that is not plain, or no tag of a report's, every mark counts as a tag that stays open.
    """
    opened: list[str] = []
    most = at = 0
    while mark := MARK.search(html, at):
        tag = PLAIN.match(html, mark.start())
        if tag is None:
            break
        at, name, closing = tag.end(), (tag[1] or "").lower(), (tag[2] or "").lower()
        if closing and (not opened or opened.pop() != closing):
            break
        if name and (name not in TAGS | RAW or (name in RAW and "math" in opened)):
            break
        if name in RAW:
            end = re.compile(f"<!--|</{name}[ \t\n\r\f/>]", re.IGNORECASE | re.ASCII).search(html, at)
            at = end.start() if end else len(html)
        if name and name not in VOID:
            opened.append(name)
        most = max(most, len(opened))
    unknown = len(MARK.findall(html, mark.start())) if mark else 0
    return max(most, len(opened) + unknown)
