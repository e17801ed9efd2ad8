"""Where the training stages store their runs, and which runs the workers continue with."""

from repro import paths, training
from repro.engine.crew import pipeline_process
from repro.files import read_parquet
from repro.paper_scale import SCALES
from repro.pipeline.lock import recorded
from repro.pipeline.progress import Repro
from repro.settings import Settings, SettingsError, nearest
from repro.training import GROUPS, Kept, policy_for, start_evaluation


def for_train(arm: str, settings: Settings) -> dict[str, Kept]:
    """`kept` and `later` of repro.training.train for stage train@arm. SettingsError if no arm that is trained here has
    that name."""
    if arm not in settings.arms:
        raise SettingsError(f"there is no arm {arm!r} under arms of params.yaml{nearest(arm, settings.arms)}")
    return {"kept": _kept([arm]), "later": _kept(_out_of_date(arm, settings))}


def begin(settings: Settings) -> None:
    """Begin to train what the `dvc repro` around this process will train: the stages that DVC makes first use one core.
    Nothing outside a `dvc repro`, where it will not train, or where verl does."""
    if (owner := pipeline_process()) is None or settings.scale in SCALES:
        return
    planned = Repro(owner, settings).state["plan"]
    if names := [name for name in settings.arms if f"train-{name}" in planned]:
        groups = read_parquet(paths.POLICY / "rollouts.parquet", "dvc repro policy", GROUPS)
        start = start_evaluation(groups, settings)
        training.begin(settings, _kept(names), policy_for("results/train"), start)


def _kept(names: list[str]) -> Kept:
    return Kept(
        {name: paths.train_results(name) for name in names},
        {name: paths.train_timings(name) for name in names},
        paths.CHECKPOINTS,
        {name: paths.MANIFESTS / f"train-{name}.json" for name in names},
        paths.PROFILE,
    )


def _out_of_date(arm: str, settings: Settings) -> list[str]:
    """The arms that a `dvc repro` will train, since dvc.lock lacks their current manifest: those after `arm` in
    params.yaml, then those before it."""
    names = list(settings.arms)
    place = names.index(arm)
    manifests = {name: paths.MANIFESTS / f"train-{name}.json" for name in names[place + 1 :] + names[:place]}
    texts = {name: manifest.read_text() for name, manifest in manifests.items() if manifest.exists()}
    return [name for name, done in zip(texts, recorded(texts.values()), strict=True) if not done]
