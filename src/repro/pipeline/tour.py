"""`make tour`: the notebook of the tour, executed with the sampler of a file, and a page of it."""

from pathlib import Path

from repro import arms, paths
from repro.pipeline.run import execute
from repro.settings import load

NOTEBOOK = paths.NOTEBOOKS / "tutorials" / "tour.ipynb"
FOLDER = paths.BUILD / "tour"


def tour(file: Path, scale: str = "tutorial") -> Path:
    """Train GRPO, ZVF and the sampler of `file`, which is tried first; the page."""
    from repro.report.html import render

    sampler = arms.sampler_in(file)
    arms.check(load(scale=scale).with_arms({"mine": {"samplers": [sampler]}}))
    FOLDER.mkdir(parents=True, exist_ok=True)
    executed, page = FOLDER / "tour.ipynb", FOLDER / "index.html"
    execute("tour", NOTEBOOK, executed, {"scale": scale, "sampler": str(file.resolve())})
    render(executed, page, "Is your sampler worth it?", {"sampler": str(file)})
    return page
