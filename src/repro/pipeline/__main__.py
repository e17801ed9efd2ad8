"""`python -m repro.pipeline COMMAND`: check, manifest, plan, run STAGE, why STAGE, verify, index, tour.

The code that runs is that of the project in the working directory, also in a worktree or in a temporary copy of DVC's:
where another copy of the package is installed, this starts again with the project's own `src` in front.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from repro import paths
from repro.errors import brief, command
from repro.settings import Settings, SettingsError, load

MARK = "REPRO_OWN_CODE"  # set once started again, so that it is tried once


@command
def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, or 1 with an error message on stderr."""
    parser = argparse.ArgumentParser(prog="python -m repro.pipeline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, act: Callable[[argparse.Namespace, Settings], int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text)
        command.set_defaults(act=act)
        return command

    add("check", _check, "check the settings, as `manifest` does, and DVC's files; write nothing")
    add("manifest", _manifest, "check the settings and write what each stage depends on")
    for name, text in (("run", "run one stage"), ("why", "print what changed since a stage's last run")):
        command = add(name, _stage, text)
        command.add_argument("stage", type=_name, help="as in dvc.yaml: policy, report@grpo (or report grpo), …")
        command.add_argument("item", nargs="?", help="the part after the @: an arm, a theory group")
    verifying = add("verify", _verify, "compare the data and figures with the committed ones")
    verifying.add_argument("revision", nargs="?", default="HEAD", help="a commit; default: HEAD")
    indexing = add("index", _index, "write reports/index.html and print its path")
    indexing.add_argument("--open", action="store_true", help="open it in the browser, if there is a display")
    planning = add("plan", _plan, "print which stages `dvc repro` will run")
    planning.add_argument("targets", nargs="*", help="as for dvc repro; default: every stage")
    touring = add("tour", _tour, "train the sampler of a file next to GRPO and ZVF, and show a page of it")
    touring.add_argument("file", nargs="?", type=Path, default=paths.NOTEBOOKS / "tutorials" / "own_sampler.py")
    options = parser.parse_args(arguments)
    return options.act(options, load())


def _name(stage: str) -> str:
    """Without the file that DVC_STAGE puts in front, as in ../dvc.yaml:report@grpo, where DVC was called elsewhere."""
    return stage.rpartition(":")[2]


def _check(options: argparse.Namespace, settings: Settings) -> int:
    from repro.pipeline.lock import recorded_stages
    from repro.pipeline.manifest import check

    check(settings)
    recorded_stages()
    return 0


def _manifest(options: argparse.Namespace, settings: Settings) -> int:
    from repro.pipeline.manifest import write_manifests

    print(f"scale {settings.scale}: {len(write_manifests(settings))} stages")
    return 0


def _plan(options: argparse.Namespace, settings: Settings) -> int:
    from repro.pipeline.manifest import manifest, manifest_text
    from repro.pipeline.plan import needed_for, will_run
    from repro.pipeline.stage import all_stages

    declared = all_stages(settings)
    addresses = {name for stage in declared for name in (stage.kind, stage.address)}
    if unknown := [target for target in options.targets if target not in addresses]:
        raise SettingsError(f"dvc.yaml has no stage {brief(unknown[0])}: `dvc stage list` shows all")
    stages = needed_for(options.targets, declared)
    names = will_run(stages, {stage.name: manifest_text(manifest(stage, settings)) for stage in stages})
    for stage in stages:
        if stage.name in names:
            print(stage.address)
    print(f"{len(names)} of {len(stages)} stages" if names else "everything is up to date")
    return 0


def _index(options: argparse.Namespace, settings: Settings) -> int:
    from repro.pipeline.pages import listed
    from repro.report.index import write_index

    _show(write_index(listed=listed(settings)), options.open)
    return 0


def _tour(options: argparse.Namespace, settings: Settings) -> int:
    from repro.pipeline.tour import tour

    _show(tour(options.file))
    return 0


def _show(page: Path, show: bool = True) -> None:
    """Print where the page is, and open it where there is a display: else a text browser would start, and wait."""
    import webbrowser

    print(page.resolve())
    if show and (sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(page.resolve().as_uri())


def _verify(options: argparse.Namespace, settings: Settings) -> int:
    from repro.pipeline.verify import verify

    outcome = verify(options.revision, settings.statistics.confidence)
    print(outcome.sentences())
    return 0 if outcome.holds else 1


def _stage(options: argparse.Namespace, settings: Settings) -> int:
    from repro.pipeline.lock import md5, recorded_dependencies
    from repro.pipeline.manifest import manifest, manifest_text
    from repro.pipeline.run import reason, run_stage
    from repro.pipeline.stage import stage as find_stage

    kind, _, item = options.stage.partition("@")
    if item and options.item:
        raise SettingsError(f"{options.stage} names its item: leave out {options.item}")
    stage = find_stage(kind, settings, options.item or item or None)
    if options.command == "why":
        now = manifest(stage, settings)
        same = "will not run for its settings or code, those of dvc.lock (`dvc status` also looks at its data)"
        print(f"{stage.name} {same if md5(manifest_text(now)) in recorded_dependencies() else reason(stage, now)}")
        return 0
    run_stage(stage, settings)
    return 0


def with_own_code() -> None:
    """Start again with the project's own code in front if another copy of the package was imported."""
    if paths.SOURCE.resolve() != paths.PACKAGE and MARK not in os.environ:
        search = os.pathsep.join(filter(None, [str(paths.SOURCE.parent), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": search, MARK: "1"}
        os.execve(sys.executable, [sys.executable, "-m", "repro.pipeline", *sys.argv[1:]], environment)


if __name__ == "__main__":
    with_own_code()
    sys.exit(main())
