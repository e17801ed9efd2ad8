"""Markdown to HTML with formulas, and the first sentence of a text."""

import html
import re
from pathlib import Path

from repro.report.mathml import to_mathml

LEAD = 2  # sentences of an answer that stand above its figure
LINE_BREAKS = ("<br>", "<br/>", "<br />")  # the one tag that a cell of a Markdown table needs


def markdown_to_html(
    source: str, attachments: dict | None = None, folder: Path | None = None, *, authored: bool = True
) -> str:
    """Markdown with `$…$`, `$$…$$` and LaTeX environments as HTML with MathML; local images are embedded.

    `authored`: a cell of the notebook, whose HTML counts and whose formulas must be right. What a cell printed instead
    may quote a model, a data set or params.yaml: its HTML and its images from elsewhere are shown as text, and so is a
    formula that cannot be rendered.
    """
    from nbconvert.filters.markdown_mistune import MarkdownWithMath

    return MarkdownWithMath(renderer=_renderer(attachments, folder, authored)).render(source)


def _renderer(attachments: dict | None, folder: Path | None, authored: bool):
    from mistune.util import safe_entity
    from nbconvert.filters.markdown_mistune import IPythonRenderer

    class Renderer(IPythonRenderer):
        def inline_math(self, body: str) -> str:
            return to_mathml(body) if authored else formula_or_text(body)

        def block_math(self, body: str) -> str:
            # A span, because nbconvert puts displayed formulas inside a paragraph.
            drawn = to_mathml(body, display=True) if authored else formula_or_text(body, display=True)
            return f'<span class="formula">{drawn}</span>'

        def latex_environment(self, name: str, body: str) -> str:
            return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

        text = staticmethod(safe_entity)  # an entity is the character it names, in what is not authored too

        def inline_html(self, html: str) -> str:
            return html if html in LINE_BREAKS else super().inline_html(html)

        def image(self, text: str, url: str, title: str | None = None) -> str:
            if authored or url.startswith(("data:image/", "attachment:")):
                return super().image(text, url, title)
            return html.escape(f"![{text}]({url})", quote=False)

        def _html_embed_images(self, html: str) -> str:
            # nbconvert would parse every tag separately here, and so close it before its text.
            return super()._html_embed_images(html) if "<img" in html else html

    return Renderer(
        escape=not authored,
        allow_harmful_protocols=authored,
        attachments=attachments,
        embed_images=authored and folder is not None,
        path=str(folder),
        anchor_link_text="#",
    )


def formula_or_text(tex: str, *, display: bool = False) -> str:
    """The formula as MathML; as code where it cannot be rendered."""
    try:
        return to_mathml(tex, display=display)
    except ValueError:
        return f"<code>${html.escape(tex, quote=False)}$</code>"


def inline_math(text: str) -> str:
    """Plain text as HTML, with its `$…$` rendered where it can be."""
    parts = text.split("$")
    if len(parts) % 2 == 0:  # an unmatched dollar
        return html.escape(text)
    return "".join(formula_or_text(part) if i % 2 else html.escape(part) for i, part in enumerate(parts))


def first_sentence(markdown: str, *, authored: bool = True) -> str:
    """The first sentence of the first paragraph of `markdown`, as plain text that keeps `$…$`; "" if there is none.
    `authored`: as in `markdown_to_html`."""
    from bs4 import BeautifulSoup
    from mistune.util import safe_entity
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        text = staticmethod(safe_entity)

    rendered = MarkdownWithMath(renderer=Renderer(escape=not authored)).render(markdown)
    paragraph = BeautifulSoup(rendered, "html.parser").p
    return sentences(" ".join(paragraph.get_text().split()))[0] if paragraph else ""


def lead_and_rest(markdown: str) -> tuple[str, str]:
    """The first `LEAD` sentences of the first paragraph, and what follows them."""
    first, _, more = markdown.strip().partition("\n\n")
    found = sentences(first)
    rest = [" ".join(found[LEAD:]), more.strip()]
    return " ".join(found[:LEAD]), "\n\n".join(filter(None, rest))


def sentences(text: str) -> list[str]:
    """The sentences of `text`, which may hold `$…$` and `**…**`; at least one."""
    starts = [0]
    for end in re.finditer(r"[.!?](\*\*)?(?=\s+[^a-z])", text):
        before, whole = text[: end.start()], text[: end.end()]
        if (
            before.count("$") % 2 == 0
            and whole.count("**") % 2 == 0
            and not re.search(r"\b(Fig|Eq|eq|Thm|Sec|Alg|App|Dr|vs|cf|al|e\.g|i\.e)$", before)
        ):
            starts.append(end.end())
    return [text[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
