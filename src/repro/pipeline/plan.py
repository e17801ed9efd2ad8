"""Which stages a `dvc repro` will run, from dvc.lock and the manifests; known before any of them has."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from repro import paths
from repro.pipeline.lock import md5, recorded_stages
from repro.pipeline.stage import Stage


def will_run(stages: Sequence[Stage], manifests: Mapping[str, str]) -> list[str]:
    """The names of those of `stages` that are out of date, in their order: whose manifest (given as text) is not that
    of dvc.lock, of which an output is not there, or whose data another one of them makes again."""
    stale = out_of_date(stages, manifests)
    above = makers(stages)
    while more := {stage.name for stage in stages if stage.name not in stale and above[stage.name] & stale}:
        stale |= more
    return [stage.name for stage in stages if stage.name in stale]


def out_of_date(stages: Iterable[Stage], manifests: Mapping[str, str]) -> set[str]:
    """The names of those that will run whatever their data: another manifest than in dvc.lock, or no output."""
    locked = recorded_stages()

    def current(stage: Stage) -> bool:
        known = {dep.get("md5") for dep in locked.get(stage.address, {}).get("deps", [])}
        return md5(manifests[stage.name]) in known and all((paths.ROOT / out).exists() for out in stage.outs)

    return {stage.name for stage in stages if not current(stage)}


def needed_for(targets: Collection[str], stages: Sequence[Stage]) -> list[Stage]:
    """The stages that `dvc repro TARGETS` looks at: they and those that make what they read; all without targets."""
    wanted, above = {stage.name for stage in stages if {stage.kind, stage.address} & set(targets)}, makers(stages)
    while more := {maker for name in wanted for maker in above[name]} - wanted:
        wanted |= more
    return [stage for stage in stages if stage.name in wanted] if targets else list(stages)


def makers(stages: Iterable[Stage]) -> dict[str, set[str]]:
    """{stage: the stages whose outputs it reads}: an output is read as it is, in part, or in a folder of several."""
    made = {out: stage.name for stage in stages for out in stage.outs}

    def above(dep: str) -> set[str]:
        parts = dep.split("/")
        around = {made[folder] for n in range(1, len(parts) + 1) if (folder := "/".join(parts[:n])) in made}
        return around | {name for out, name in made.items() if out.startswith(f"{dep}/")}

    known = {dep: above(dep) for dep in {dep for stage in stages for dep in stage.deps}}
    return {stage.name: set().union(*(known[dep] for dep in stage.deps)) for stage in stages}
