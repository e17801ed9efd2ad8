"""Stages before any training: theory, the base policy, its profile."""

from repro import paths
from repro.pipeline.closure import heading, text_hash
from repro.pipeline.stage import Stage
from repro.settings import Settings, SettingsError, nearest


def theory(settings: Settings, group: str) -> Stage:
    groups = type(settings.theory).model_fields
    if group not in groups:
        raise SettingsError(f"there is no theory group {group!r}{nearest(group, groups)}")
    folder, notebook = paths.RESULTS / "theory" / group, paths.NOTEBOOKS / "theory" / f"{group}.ipynb"
    return Stage(
        f"theory-{group}",
        notebook,
        lambda s: getattr(s.theory, group).model_dump(),
        getattr(settings.theory, group).model_dump() | {"output": str(folder)},
        data=(folder,),
        report=paths.REPORTS / f"theory-{group}.html",
        title=heading(notebook),
    )


def policy(settings: Settings) -> Stage:
    return Stage(
        "policy",
        paths.NOTEBOOKS / "jobs/policy.ipynb",
        lambda s: {
            "task": s.task.model_dump(),
            "policy": s.policy.model_dump(),
            "max_new_tokens": s.engine.max_new_tokens,
            "temperature": s.engine.temperature,
        },
        {"scale": settings.scale, "output": str(paths.POLICY)},
        data=(paths.POLICY,),
    )


def policy_report(settings: Settings) -> Stage:
    return Stage(
        "policy_report",
        paths.NOTEBOOKS / "studies/base_policy.ipynb",
        lambda s: {"task": s.task.model_dump(), "demonstrations": s.policy.demonstrations.model_dump()},
        {"scale": settings.scale},
        data=(paths.POLICY,),
        report=paths.REPORTS / "policy.html",
        title="The base policy and its queries: is this the papers' regime?",
    )


def profile(settings: Settings) -> Stage:
    return Stage(
        "profile",
        paths.NOTEBOOKS / "jobs/profile.ipynb",
        lambda s: {
            "profile": s.profile.model_dump(),
            "seeds": s.seeds,
            "task": s.task.model_dump(exclude={"pretraining_queries": True}),
            "max_new_tokens": s.engine.max_new_tokens,
            "temperature": s.engine.temperature,
            "batch_rollouts": s.evaluation.batch_rollouts,
        },
        {"scale": settings.scale, "output": str(paths.PROFILE)},
        data=(paths.PROFILE,),
    )


def profile_report(settings: Settings) -> Stage:
    return Stage(
        "profile_report",
        paths.NOTEBOOKS / "studies/profile.ipynb",
        lambda s: {
            "profile": s.profile.model_dump(),
            "arm": s.arms["sgpo"].model_dump() if "sgpo" in s.arms else None,
            "baseline": s.arms[s.baseline].plan,
            "margin": s.theory.group_size.margin,
            "seeds": s.seeds,
            "task": s.task.model_dump(exclude={"pretraining_queries": True}),
            "engine": s.engine.model_dump(include={"steps", "rollouts_per_step", "temperature"}),
            "statistics": s.statistics.model_dump(),
        },
        {"scale": settings.scale, "output": str(paths.RESULTS / "profile_summary")},
        data=(paths.PROFILE, paths.PROFILE.with_name("profile_temperature"), paths.RESULTS / "profile_summary"),
        report=paths.REPORTS / "profile.html",
        title="What does the policy already know?",
    )


def profile_language_model(settings: Settings) -> Stage:
    return Stage(
        "profile_language_model",
        paths.NOTEBOOKS / "jobs/profile_language_model.ipynb",
        lambda s: {
            "language_model": s.language_model.model_dump(),
            "problems": text_hash(paths.SOURCE / "tasks" / "word_problems.jsonl"),  # data, so not among the modules
        },
        {"scale": settings.scale, "output": str(paths.RESULTS / "language_model")},
        data=(paths.RESULTS / "language_model",),
    )


def language_model_report(settings: Settings) -> Stage:
    folders = (paths.RESULTS / "language_model", paths.RESULTS / "language_model_plan")
    return Stage(
        "language_model_report",
        paths.NOTEBOOKS / "studies/language_model.ipynb",
        lambda s: {
            "seed": s.language_model.seed,
            "group_size": s.theory.group_size.model_dump(),
            "rollouts_per_step": s.engine.rollouts_per_step,
        },
        {"scale": settings.scale, "output": str(folders[1])},
        data=folders,
        report=paths.REPORTS / "language-model.html",
        title="What would sGPO's plan do for a real language model?",
    )
