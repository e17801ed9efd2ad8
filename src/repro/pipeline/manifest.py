"""Manifests: one small file per stage that lists everything its results depend on, apart from its data.

A stage of dvc.yaml depends on its manifest: the settings it reads, its notebook (without outputs) and the hash of each
module that the notebook imports. The first stage of the pipeline writes them all, in seconds, whenever anything in
src/, notebooks/ or params.yaml has changed; a stage whose manifest is unchanged does not run again. So an edit to
plotting retrains nothing, no list of files is maintained by hand, and comparing two manifests shows why a stage ran.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repro import arms, paths
from repro.closure import closure, code_hash, digest, notebook_hash, notebook_modules, text_hash
from repro.files import read_json
from repro.pipeline.stage import Stage, all_stages
from repro.settings import Settings, SettingsError
from repro.settings.text import read_mapping


def manifest(stage: Stage, settings: Settings, runs: dict[str, str] | None = None) -> dict[str, Any]:
    """The dependencies of `stage`: {"stage", "settings", "notebook": {path: hash}, "modules": {path: hash}, "runs":
    {arm or panel: hash of the keys it asks for}}. `runs`: the last of these, where it is known.

    A stage that names its `code` in dvc.yaml depends on these modules and not on its notebook, which only starts a job:
    scheduling, logging and text do not affect numbers. The modules do not include the schema of the settings: the
    values that a stage reads are included, and a new section of params.yaml affects only the stages that read it.
    """
    notebook = "code" not in stage.meta
    modules = notebook_modules(stage.notebook) if notebook else set(stage.meta["code"])
    modules |= {"repro", *stage.meta.get("also", ())} | set(stage.methods(settings))
    packages = {parent for module in modules for parent in _parents(module)}
    digest = text_hash if stage.meta.get("docstrings") else code_hash
    hashes = {str(path.relative_to(paths.ROOT)): digest(path) for path in closure(modules | packages)}
    read = [*stage.meta.get("files", ()), *(f"runs/panels/{name}" for name in stage.meta.get("runs", ()))]
    shown = [paths.ROOT / entry for entry in read] + (_page() if stage.report else [])
    for path in sorted(file for entry in shown for file in _files(entry)):
        hashes[str(path.relative_to(paths.ROOT))] = text_hash(path)
    if own := _of_design(stage.meta.get("runs", ())):
        hashes["runs/design.yaml"] = own
    return {
        "stage": stage.name,
        "settings": json.loads(json.dumps(stage.settings(settings))),  # as read back from JSON: lists, not tuples
        "notebook": {str(stage.notebook.relative_to(paths.ROOT)): notebook_hash(stage.notebook)} if notebook else {},
        "modules": dict(sorted(hashes.items())),
        "runs": (_asked(stage, settings) if runs is None else runs) if stage.meta.get("runs") else {},
    }


def _of_design(runs: Sequence[str]) -> str:
    """The hash of runs/design.yaml without the panels that a stage does not name; "" where it names none."""
    design = read_mapping(paths.DESIGN) if runs else {"panels": {}}
    own = {name: panel for name, panel in design["panels"].items() if name in runs}
    return digest(json.dumps(design | {"panels": own}).encode()) if own else ""


def _page() -> list[Path]:
    """What makes a page of an executed notebook; README's tables and pictures and the index are of no report."""
    folder = paths.SOURCE / "report"
    made = {*closure(["repro.report.html", "repro.report.provenance"]), *_files(folder / "template")}
    return [path for path in made if folder in path.parents and not path.name.startswith("index.")]


def _asked(stage: Stage, settings: Settings) -> dict[str, str]:
    from repro.pipeline.asked import asked_by  # torch, which most stages need not wait for

    return asked_by(stage, stage.meta["runs"], settings)


def _parents(module: str) -> list[str]:
    """The packages imported with a module: a and a.b for a.b.c."""
    parts = module.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


def _files(entry: Path) -> list[Path]:
    """A file, or the files below a folder."""
    return [path for path in (entry, *entry.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def manifest_text(content: dict[str, Any]) -> str:
    """The text of a manifest file."""
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def check(settings: Settings) -> None:
    """SettingsError on settings that a stage of the pipeline would fail with, or be empty of; every arm is tried."""
    arms.check(settings)
    studies = {"fidelity": settings.fidelity, "drift": settings.drift}
    for name, study in studies.items():
        if not study.arms:
            raise SettingsError(
                f"params.yaml: {name}.arms is empty at scale {settings.scale}, so that stage {name} has nothing to "
                "show: name an arm; scales for notebooks are used by `settings.load(scale=…)`"
            )
    named = [(f"{name}.snapshot_every", study.snapshot_every, study.arms) for name, study in studies.items()]
    for key, steps, of in [*named, ("parity.steps", settings.parity.steps, settings.parity.arms)]:
        for arm in of:
            if steps > (last := settings.steps_of(arm)):
                raise SettingsError(f"params.yaml: {key} {steps} is beyond the {last} steps of {arm}; lower it")


def write_manifests(settings: Settings) -> list[Path]:
    """Check the settings, then replace build/manifests with the manifests of all stages."""
    from repro.runs import design as designs
    from repro.runs.resting import settle

    check(settings)
    partial = paths.MANIFESTS.with_name(paths.MANIFESTS.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    design, stages = designs.load(strict=False), all_stages(settings)
    settle(design, [name for name in design.panels if any(name in stage.meta.get("runs", ()) for stage in stages)])
    for stage in stages:
        (partial / f"{stage.name}.json").write_text(manifest_text(manifest(stage, settings)))
    shutil.rmtree(paths.MANIFESTS, ignore_errors=True)
    os.replace(partial, paths.MANIFESTS)
    return sorted(paths.MANIFESTS.iterdir())


def read_manifest(name: str, folder: Path = paths.MANIFESTS) -> dict[str, Any] | None:
    """The manifest of a stage, or None if it was never written."""
    path = folder / f"{name}.json"
    return read_json(path, "delete it", ("settings", "notebook", "modules", "runs")) if path.exists() else None


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed between two manifests, one phrase per change: `engine.steps: 60 → 80`, `src/… changed`."""
    old, new = _flat(before["settings"]), _flat(now["settings"])
    changes = [f"{key}: {old.get(key)} → {new.get(key)}" for key in sorted(old | new) if old.get(key) != new.get(key)]
    for kind in ("notebook", "modules", "runs"):
        for path in sorted(before[kind] | now[kind]):
            if before[kind].get(path) != now[kind].get(path):  # of runs: their settings, or what their code computes
                how = "is new" if path not in before[kind] else "changed" if path in now[kind] else "is no longer used"
                changes.append(f"{path} {how}")
    return changes


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{prefix}.{key}" if prefix else key).items()}
