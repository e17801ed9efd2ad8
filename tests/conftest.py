"""Shared by all tests: one thread per process, the order, the whole pipeline at scale `smoke`, run once, a browser."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy, deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
os.environ |= {"TOKENIZERS_PARALLELISM": "false", "DVC_NO_ANALYTICS": "1"}

import pytest
import yaml
from warm import programs

from benchmarks.copies import ROOT, copy_project

COPIED = (
    *("params.yaml", "dvc.yaml", ".dvcignore", ".gitignore", ".dvc/config", ".dvc/plots"),
    *("configs", "docs/methods.md", "notebooks", "src", "runs/design.yaml", "runs/golden.csv", "runs/here/README.md"),
)
PANELS = ("runs/first_batches", "runs/panels", "runs/policies")  # most of the files, which pages on panels read alone
ON_VERL = ("parity_train", "parity")  # stages that need verl: `make test-verl` runs them
# Of the arms a control and one of each kind, a sampler, a filter, a plan; every arm trains in test_train_arms.py.
ARMS = ("grpo", "cost-aware", "zvf", "sgpo", "grpo-again")
# Stages that are made side by side, since `dvc repro` makes one at a time, and most of them use one core: a lane of
# those that train and what they need, and one of all others.
TRAINING = ["policy", "policy_report", "profile", "train", "report", "fidelity"]
LATER = ["profile_report", "drift", "dynamics", "results"]


def pages_on_panels() -> list[str]:
    """The stages that show panels of the design: those that ask the store for some by name."""
    declared = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    of_arms = {"study", "item", "sample", "profiled", "fidelity", "drift", "parity"}
    return [
        name
        for name, entry in declared.items()
        if set(entry.get("do", entry).get("meta", {}).get("runs", ())) - of_arms
    ]


PAGES_ON_PANELS = pages_on_panels()


def lanes(pipeline: dict) -> list[list[str]]:
    """Two lists of the stages of dvc.yaml that can be made side by side, whatever is added there."""
    others = [name for name in pipeline["stages"] if name not in (*TRAINING, *LATER, *ON_VERL, "manifest")]
    return [TRAINING, others]


def pytest_collection_modifyitems(items):
    """The tests of a whole pipeline first: with pytest-xdist, one worker does them while the other does the rest.
    Those of `smoke` are marked, so that `make test-core` can leave them out."""
    for item in items:
        if "smoke" in item.fixturenames:
            item.add_marker("pipeline")
    items.sort(key=lambda item: not {"smoke", "on_verl"} & set(item.fixturenames))


def trimmed(text: str, arms: Iterable[str] = ARMS) -> str:
    """params.yaml at scale `smoke` with `arms`, the noise floor on one repeated and one further seed: every
    kind of stage, in minutes. One worker, since two import torch twice for seconds of work. Comments go."""
    params = yaml.safe_load(text)
    params["scale"] = "smoke"
    params["scales"]["tutorial"] = deepcopy(params["scales"]["smoke"])  # of notebooks that are opened by themselves
    params["engine"]["workers"] = 1
    known = params["arms"] | params["more_arms"]
    params["arms"] = {name: arm for name, arm in known.items() if name in arms}
    params["arms"]["grpo-again"]["seeds"] = [0, 5]
    params["more_arms"] = {}
    params["primaries"] = [name for name in params["primaries"] if name in arms]
    for section in ("fidelity", "drift"):
        params[section]["arms"] = [name for name in params[section]["arms"] if name in arms]
    return yaml.safe_dump(params, sort_keys=False, allow_unicode=True)


class Project:
    """A copy of this project in a folder of its own, with git and DVC, its settings `trimmed`, some stages left out.
    `tools`: the folder of a warm `python` and `dvc`; without, both start as anywhere. `panels`: with their tables."""

    def __init__(self, folder: Path, without: Iterable[str] = (), arms=ARMS, tools: Path | None = None, panels=True):
        self.folder, self.tools = folder, tools
        copy_project(folder, (*COPIED, *PANELS) if panels else COPIED)
        for name in () if panels else PANELS:  # DVC asks for the folders, and git keeps none that is empty
            (folder / name).mkdir()
            (folder / name / "none").touch()
        (folder / "params.yaml").write_text(trimmed((ROOT / "params.yaml").read_text(), arms))
        pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
        for stage in without:
            del pipeline["stages"][stage]
        (folder / "dvc.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False, allow_unicode=True))
        self.git("init", "-q")
        self.commit("a copy")

    def copy(self, folder: Path) -> "Project":
        """All of it, results and cache included, in another folder."""
        other = copy(self)
        other.folder = shutil.copytree(self.folder, folder, symlinks=True)
        return other

    def cold(self) -> "Project":
        """The same one, whose commands start as anywhere."""
        other = copy(self)
        other.tools = None
        return other

    @property
    def environment(self) -> dict[str, str]:
        """Commands find this folder's code and the running interpreter's tools."""
        folders = [self.tools, Path(sys.executable).parent, os.environ["PATH"]]
        path = os.pathsep.join(str(folder) for folder in folders if folder)
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("REPRO_", "JPY_", "GIT_"))}
        return {**clean, "PATH": path, "PYTHONPATH": str(self.folder / "src")}

    def run(self, *command: str, ok: bool = True, cwd: Path | None = None) -> str:
        """What the command printed; its success is asserted unless `ok` is False."""
        done = subprocess.run(
            command, cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True, timeout=3300
        )
        output = done.stdout + done.stderr
        assert not ok or done.returncode == 0, output[-4000:]
        assert ok or done.returncode != 0, output[-4000:]
        return output

    def git(self, *arguments: str) -> str:
        return self.run("git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main", *arguments)

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text, f"{name} does not hold {old!r}"
        path.write_text(text.replace(old, new))

    def data_hashes(self) -> dict[str, str]:
        """The hash that dvc.lock gives each data output, that is everything below results/."""
        lock = yaml.safe_load((self.folder / "dvc.lock").read_text())
        outputs = [out for stage in lock["stages"].values() for out in stage.get("outs", [])]
        return {out["path"]: out["md5"] for out in outputs if out["path"].startswith("results/")}


@pytest.fixture(autouse=True)
def own_environment():
    """What a test, or a command that it calls, sets in the environment ends with it; a launch on a CPU sets verl up."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def tools():
    """The folder of a warm `python` and `dvc`; its name is short, since that of a socket must be."""
    with TemporaryDirectory() as folder, programs(Path(folder)) as found:
        yield found


other_tools = tools  # another process, with other hashes of strings


@pytest.fixture(scope="session")
def smoke(tmp_path_factory, tools) -> Project:
    """The project after `dvc repro` at scale `smoke`, all but the stages on verl. Tests leave it up to date."""
    project = Project(tmp_path_factory.mktemp("smoke"), without=ON_VERL, tools=tools)
    project.run("dvc", "repro", "manifest")
    repro = ("dvc", "--wait-for-lock", "repro", "--single-item")
    pipeline = yaml.safe_load((project.folder / "dvc.yaml").read_text())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda stages: project.run(*repro, *stages), lanes(pipeline)))
    project.run("dvc", "repro")
    return project


@pytest.fixture(scope="module")
def browser():
    """The system's Chromium; a test that asks for it is skipped where there is none. Of a module, since its event loop
    would be in the way of tests that start one."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pages are not opened")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium is installed (apt install chromium): pages are checked as text alone")
    with api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


def complaints(browser, page: Path, widths: Iterable[int] = (1280, 390)) -> list[str]:
    """What windows of these widths in pixels have against a page: errors, requests to anything but files, figures that
    do not answer, a page wider than the window."""
    tab = browser.new_page(viewport={"width": 1280, "height": 844})
    found = []
    tab.route(re.compile("^https?:"), lambda route: route.abort())
    tab.on("request", lambda request: found.append(request.url) if request.url.startswith("http") else None)
    tab.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: found.append(str(error)))
    tab.goto(page.as_uri())
    tab.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    for figure in tab.query_selector_all("figure[id]"):
        figure.scroll_into_view_if_needed()
        silent = f"figure {figure.get_attribute('id')} does not answer"
        found += [] if answers(figure) else [silent]
    for width in widths:
        if width != tab.viewport_size["width"]:
            tab.set_viewport_size({"width": width, "height": 844})
            tab.wait_for_timeout(100)  # for drawings to follow
        wide = tab.evaluate("document.documentElement.scrollWidth")
        found += [f"{wide} pixels wide in a window of {width}"] if wide > width else []
    tab.close()
    return [f"{page.name}: {complaint}" for complaint in found]


def answers(figure, seconds: float = 10) -> bool:
    """Whether the drawing of a report's figure takes the picture's place."""
    script = """async (figure, left) => {
        for (; left > 0 && !figure.classList.contains("answers"); left -= 20)
            await new Promise(on => setTimeout(on, 20))
        return left > 0
    }"""
    return figure.evaluate(script, 1000 * seconds)
