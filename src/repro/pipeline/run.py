"""Run one stage: print why it runs, execute its notebook, render its report."""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from repro import paths, stops
from repro.engine.workers import end_with
from repro.errors import Refused
from repro.files import write_text
from repro.notebook import failed as failed_checks
from repro.pipeline.manifest import differences, manifest, manifest_text, read_manifest
from repro.pipeline.stage import Stage
from repro.settings import Settings

KERNEL_STARTS = 4  # a kernel whose ports were taken dies at start-up; a new one draws new ports
TAKES_UP = "checkpoints are kept, run it again to resume"
LAST_RUN = paths.BUILD / "last_run"  # the manifest of each stage's last successful run


class StageFailed(Refused):
    """One sentence: which stage, which error, where to find the executed notebook."""


class OtherCode(Refused):
    """One sentence: a stage would record the hash of other code than runs."""


def run_stage(stage: Stage, settings: Settings) -> None:
    """Execute and report. Raises StageFailed; the executed notebook is kept in build/executed in any case."""
    # A killed `make repro` must leave nothing running. A shell may stand between dvc and this, and outlive it.
    left = f"repro: {stage.name}: ended, as what had started it did; {TAKES_UP}"
    end_with(pipeline_process() or stops.PARENT, lambda: print(left, file=sys.stderr, flush=True))
    check_code()
    now = manifest(stage, settings, (read_manifest(stage.name) or {}).get("runs"))
    started = time.monotonic()
    executed = paths.EXECUTED / f"{stage.name}.ipynb"
    executed.parent.mkdir(parents=True, exist_ok=True)
    print(f"{stage.name}: {reason(stage, now)}", flush=True)
    execute(stage.name, stage.notebook, executed, stage.parameters(settings))
    seconds = time.monotonic() - started
    if stage.report:
        _render(stage, settings, now, executed, seconds)
    write_text(manifest_text(now), LAST_RUN / f"{stage.name}.json")
    for name in failed_checks(json.loads(executed.read_text())):
        print(f"{stage.name}: check {name!r} fails: rewrite the sentence above it in the notebook", flush=True)
    print(f"{stage.name}: done in {seconds:.0f} s", flush=True)


def pipeline_process() -> int | None:
    """The id of the `dvc` process that this one runs under; None outside a pipeline."""
    if "DVC_STAGE" not in os.environ:
        return None
    import psutil

    for parent in psutil.Process().parents():
        with suppress(psutil.Error):
            if any(Path(word).name in ("dvc", "dvc.exe") for word in parent.cmdline()[:3]):
                return parent.pid
    return None


def check_code() -> None:
    """OtherCode unless the package that runs is the one that manifests hash."""
    if paths.SOURCE.resolve() != paths.PACKAGE:
        raise OtherCode(
            f"the code that runs is {paths.PACKAGE}, but this project's is {paths.SOURCE}: put the latter first, as in "
            f"`PYTHONPATH={paths.SOURCE.parent} dvc repro`, or run in the project that is installed"
        )


def reason(stage: Stage, now: dict[str, Any]) -> str:
    """Why the stage runs, from its manifest and that of its last run on this machine."""
    before = read_manifest(stage.name, LAST_RUN)
    if before is None:
        return "runs for the first time here"
    changes = differences(before, now)
    if not changes:
        return "runs again with the same settings and code: its data changed, an output is missing, or it was forced"
    more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
    return "runs again because " + "; ".join(changes[:4]) + more


def execute(name: str, notebook: Path, executed: Path, parameters: dict[str, Any]) -> None:
    """Run `notebook`, and print what it prints. StageFailed with `name` and the error of a cell."""
    # Importing papermill imports jsonschema, which builds a grammar of internationalised addresses if it can: three
    # quarters of a second in every stage, for a format that no notebook uses.
    sys.modules.setdefault("rfc3987_syntax", None)
    import papermill
    from nbclient.exceptions import DeadKernelError

    os.environ["REPRO_ROOT"] = str(paths.ROOT)
    for attempt in range(1, KERNEL_STARTS + 1):
        try:
            papermill.execute_notebook(
                str(notebook),
                str(executed),
                parameters=parameters,
                kernel_name="python3",
                cwd=str(paths.ROOT),
                progress_bar=False,
                request_save_on_cell_execute=False,  # twice a cell, the whole notebook: two seconds of a stage
                stdout_file=sys.stdout,
                stderr_file=sys.stderr,
                start_timeout=120,
                shutdown_kernel="immediate",  # a graceful shutdown takes half a second per stage
                extra_arguments=["--IPKernelApp.log_level=50"],
            )
            return
        except KeyboardInterrupt as stop:
            word = stops.WORDS[stops.number_of(stop)]
            raise type(stop)(f"{name}: {word}; {TAKES_UP}") from None
        except papermill.PapermillExecutionError as error:
            raise StageFailed(
                f"{name}: {error.ename}: {error.evalue} (cell {error.exec_count} of "
                f"{os.path.relpath(executed, paths.ROOT)}, which has the full traceback)"
            ) from None
        except (RuntimeError, DeadKernelError) as error:
            if "Kernel died" not in str(error) and "Kernel didn't respond" not in str(error):
                raise
            if _ran_a_cell(executed) or attempt == KERNEL_STARTS:
                raise StageFailed(f"{name}: its kernel died: {error}; see {executed}") from None
            print(f"{name}: the kernel did not start, trying again ({attempt})", flush=True)


def _ran_a_cell(executed: Path) -> bool:
    """Whether the kernel ran any cell: then it did start, and a retry would hide a real failure."""
    if not executed.exists():
        return False
    cells = json.loads(executed.read_text())["cells"]
    return any(cell.get("execution_count") for cell in cells)


def _render(stage: Stage, settings: Settings, now: dict[str, Any], executed: Path, seconds: float) -> None:
    from repro.pipeline.pages import arm_links, listed, neighbours
    from repro.report.html import render
    from repro.report.index import write_index
    from repro.report.provenance import collect

    _say_what_it_rests_on(stage, executed)
    provenance = collect(
        settings=now["settings"],
        seeds=now["settings"].get("seeds") or settings.seeds,
        seconds=seconds,
        data=[path for path in stage.data if path.exists()],
        command=f"dvc repro {stage.name.replace('-', '@', 1)}",
    )
    try:
        render(
            executed,
            stage.report,
            stage.title,
            provenance,
            group=stage.meta["group"],
            neighbours=neighbours(stage, settings),
            links=arm_links(settings),
            where=stage.meta.get("where"),
        )
    except ValueError as error:
        raise StageFailed(f"{stage.name}: its report cannot be made: {error}") from error
    write_index(stage.report.parent, listed(settings))


def _say_what_it_rests_on(stage: Stage, executed: Path) -> None:
    """Put the line below the title of a report whose panels were made with other settings than today's."""
    from repro.stats import panels

    if said := panels.says(stage.meta.get("runs", ())):
        content = json.loads(executed.read_text(encoding="utf-8"))
        line = {"cell_type": "markdown", "id": "rests-on", "metadata": {}, "source": [f"**{said}**"]}
        content["cells"].insert(1, line)
        executed.write_text(json.dumps(content), encoding="utf-8")
