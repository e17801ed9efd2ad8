"""What keeps a page inert: nh3 cleans every piece of HTML, and a policy in the page's head forbids the rest.

The policy allows the page's own styles and scripts by their hashes, pictures and fonts inside the page, and no request
but that of a page's own script for the drawing library, a file next to the page.
"""

import base64
import hashlib
import re

TEXT = "p br hr h1 h2 h3 h4 h5 h6 ul ol li dl dt dd blockquote pre code span div a em strong b i u s del ins small sub"
TEXT += " sup abbr kbd samp var mark q cite bdi bdo wbr"
PAGE = "main header footer section article nav figure figcaption picture source img details summary time button"
PAGE += " label input output"
TABLE = "table caption colgroup col thead tbody tfoot tr th td"
MATHML = "math mrow mi mo mn ms mtext mspace mfrac msqrt mroot mstyle mpadded mphantom menclose msub msup msubsup"
MATHML += " munder mover munderover mmultiscripts mprescripts mtable mtr mtd"
TAGS = {*TEXT.split(), *PAGE.split(), *TABLE.split(), *MATHML.split()}
SPACING = {"lspace", "rspace", "stretchy", "fence", "form", "separator", "symmetric", "minsize", "maxsize", "largeop"}
ATTRIBUTES = {
    "*": {"class", "title", "lang", "dir", "role", "aria-label", "aria-labelledby", "aria-hidden", "tabindex"},
    **{f"h{level}": {"id"} for level in range(1, 7)},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "figure": {"id"},
    "source": {"srcset", "media"},
    "details": {"open"},
    "div": {"id"},
    "input": {"type", "id", "placeholder"},
    "ol": {"start"},
    "li": {"data-group"},
    "section": {"data-group", "id"},
    "table": {"id"},
    "th": {"colspan", "rowspan", "scope"},
    "td": {"colspan", "rowspan"},
    "col": {"span"},
    "colgroup": {"span"},
    "math": {"display", "alttext"},
    "mi": {"mathvariant"},
    "mo": {*SPACING, "accent", "movablelimits"},
    "mspace": {"width", "height", "depth", "linebreak"},
    "mfrac": {"linethickness"},
    "mstyle": {"displaystyle", "scriptlevel"},
    "mover": {"accent"},
    "munder": {"accentunder"},
    "munderover": {"accent", "accentunder"},
    "mpadded": {"width", "height", "depth", "lspace", "voffset"},
    "menclose": {"notation"},
    "mtable": {"displaystyle", "rowspacing", "columnspacing", "columnalign"},
    "mtd": {"columnalign"},
}
EMBEDDED = re.compile(r"data:image/(svg\+xml|png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")
CHARSET = re.compile(r'<meta charset="utf-8"\s*/?>')
DATA = (
    '<script id="figures" type="application/json">'  # no program: what figures.js draws; attributes as bs4 sorts them
)
BLOCK = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


def clean(html: str) -> str:
    """`html` as the browser will parse it, every tag closed, without anything that acts or loads: no scripts, handlers,
    frames, forms or styles, links only to pages and addresses, pictures only inside the page."""
    import nh3

    return nh3.clean(
        html,
        tags=TAGS,
        attributes=ATTRIBUTES,
        clean_content_tags={"script", "style"},
        attribute_filter=_filter,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer",
    )


def _filter(tag: str, attribute: str, value: str) -> str | None:
    if attribute in ("src", "srcset") and not EMBEDDED.fullmatch(value):
        return None
    if attribute == "href" and value.strip().lower().startswith("data:"):
        return None
    return value


def with_policy(page: str) -> str:
    """`page`, whose head has the only styles and scripts that may run, with the policy that says so.

    It is the head's first entry but for the character set, since a policy concerns only what follows it. On a page with
    figures that answer, its own script may start another, the drawing library next to the page; nothing else may.
    """
    hashes: dict[str, list[str]] = {"style": [], "script": []}
    head = page.partition("</head>")[0]
    for kind, content in BLOCK.findall(head):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    if DATA in head:
        hashes["script"].append("'strict-dynamic'")
    rules = {
        "default-src": "'none'",
        "style-src": " ".join(hashes["style"]) or "'none'",
        "script-src": " ".join(hashes["script"]) or "'none'",
        "img-src": "data:",
        "font-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    policy = "; ".join(f"{name} {value}" for name, value in rules.items())
    charset = CHARSET.search(page)
    meta = f'\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return page[: charset.end()] + meta + page[charset.end() :]
