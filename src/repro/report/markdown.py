"""Markdown to HTML with formulas, and the first sentence of a text."""

import html
import re
from pathlib import Path

from repro.report.mathml import to_mathml


def markdown_to_html(source: str, attachments: dict | None = None, folder: Path | None = None) -> str:
    """Markdown with `$…$`, `$$…$$` and LaTeX environments as HTML with MathML; local images are embedded."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        def inline_math(self, body: str) -> str:
            return to_mathml(body)

        def block_math(self, body: str) -> str:
            # A span, because nbconvert puts displayed formulas inside a paragraph.
            return f'<span class="formula">{to_mathml(body, display=True)}</span>'

        def latex_environment(self, name: str, body: str) -> str:
            return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

        def _html_embed_images(self, html: str) -> str:
            # nbconvert would parse every tag separately here, and so close it before its text.
            return super()._html_embed_images(html) if "<img" in html else html

    renderer = Renderer(
        escape=False, attachments=attachments, embed_images=folder is not None, path=str(folder), anchor_link_text="#"
    )
    return MarkdownWithMath(renderer=renderer).render(source)


def inline_math(text: str) -> str:
    """Plain text as HTML, with its `$…$` rendered."""
    parts = text.split("$")
    if len(parts) % 2 == 0:  # an unmatched dollar
        return html.escape(text)
    return "".join(to_mathml(part) if i % 2 else html.escape(part) for i, part in enumerate(parts))


def first_sentence(markdown: str) -> str:
    """The first sentence of the first paragraph of `markdown`, as plain text that keeps `$…$`; "" if there is none."""
    from bs4 import BeautifulSoup
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    paragraph = BeautifulSoup(
        MarkdownWithMath(renderer=IPythonRenderer(escape=False)).render(markdown), "html.parser"
    ).p
    text = " ".join(paragraph.get_text().split()) if paragraph else ""
    for end in re.finditer(r"[.!?](?=\s+[^a-z])", text):
        before = text[: end.start()]
        if before.count("$") % 2 == 0 and not re.search(r"\b(Fig|Eq|eq|Thm|Sec|Alg|vs|cf|al|e\.g|i\.e)$", before):
            return text[: end.end()]
    return text
