"""The order of the reports and their links: a page's neighbours, and its arms' pages."""

from collections.abc import Mapping

from repro.pipeline.stage import Stage, all_stages
from repro.report.index import Entry, group_order
from repro.settings import Settings

ANSWERS = ("results", "equal_cost")  # kinds of stages: after the same number of steps, and for the same FLOPs


def in_order(settings: Settings) -> list[Stage]:
    """The stages that make a report, by group; arms as in params.yaml, and the two that answer before the rest."""
    groups: dict[str, list[Stage]] = {}
    for stage in all_stages(settings):
        if stage.report:
            groups.setdefault(stage.meta["group"], []).append(stage)
    ordered = [stage for group in group_order(groups) for stage in groups[group]]
    return sorted(ordered, key=lambda stage: ANSWERS.index(stage.kind) if stage.kind in ANSWERS else len(ANSWERS))


def listed(settings: Settings) -> list[Entry]:
    """What the index lists, in its order; an arm under its group in params.yaml."""
    return [
        Entry(
            stage.report.name,
            stage.meta["group"],
            settings.arms[stage.item].group if stage.kind == "report" else "",
            stage.title,
            f"dvc repro {stage.address}",
        )
        for stage in in_order(settings)
    ]


def neighbours(stage: Stage, settings: Settings) -> Mapping[str, tuple[str, str]]:
    """The file and title of the `previous` and the `next` report, as far as there are such."""
    ordered = in_order(settings)
    place = [other.name for other in ordered].index(stage.name)
    found = {"previous": ordered[place - 1 : place], "next": ordered[place + 1 : place + 2]}
    return {which: (one.report.name, one.title) for which, near in found.items() for one in near}


def arm_links(settings: Settings) -> Mapping[str, str]:
    """{an arm's title: its report}, for the cells of tables."""
    reports = [stage for stage in in_order(settings) if stage.kind == "report"]
    return {settings.arms[stage.item].title: stage.report.name for stage in reports}
