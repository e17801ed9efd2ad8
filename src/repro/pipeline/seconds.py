"""Where a `dvc repro` stands: which stage of how many, the time gone, and the time left by what stages took before.

Each stage is a process of its own. What they share lies in build/: a file for the `dvc repro` under way, and what each
stage took here last, by scale. Before a scale has run here, configs/seconds.json stands in: a table of another machine.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean
from types import TracebackType
from typing import Any

from repro import paths
from repro.engine.progress import SILENCE
from repro.files import write_json
from repro.pipeline.lock import recorded_outputs
from repro.pipeline.plan import makers, needed_for, out_of_date, will_run
from repro.pipeline.stage import Stage, all_stages
from repro.settings import Settings
from repro.stored import Amount, is_of

TABLE = paths.CONFIGS / "seconds.json"  # {scale: {stage: seconds}}; `python -m repro.pipeline seconds` writes it
OWN = paths.BUILD / "seconds.json"  # the same, of this machine
UNDER_WAY = paths.BUILD / "progress"  # a file for each `dvc repro`, named by its process
STATE = {  # of such a file
    "began": Amount,
    "last": Amount,
    "plan": list[str],
    "done": dict[str, Amount],
    "before": dict[str, str],
}


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


class Repro:
    """The `dvc repro` that this stage runs under: the stages it will run, and what those that have run took."""

    def __init__(self, owner: int, settings: Settings):
        self.settings, self.path = settings, UNDER_WAY / f"{owner}.json"
        known = read_object(self.path)
        self.state = known if is_of(STATE, known) else self._begin(owner)

    def _begin(self, owner: int) -> dict[str, Any]:
        import psutil

        for path in UNDER_WAY.glob("*.json"):
            if not (path.stem.isdecimal() and psutil.pid_exists(int(path.stem))):
                path.unlink(missing_ok=True)
        process, stages = psutil.Process(owner), all_stages(self.settings)
        words = process.cmdline()
        targets = {word for word in words for stage in stages if word in (stage.kind, stage.address)}
        asked = needed_for(targets, stages)
        if {"-s", "--single-item"} & set(words):
            asked = [stage for stage in asked if {stage.kind, stage.address} & targets]
        manifests = {stage.name: _manifest(stage.name) for stage in asked}
        plan = will_run(asked, manifests, force=bool({"-f", "--force"} & set(words)))
        began = process.create_time()
        return {"began": began, "last": began, "plan": plan, "done": {}, "before": recorded_outputs()}

    def start(self, stage: Stage) -> None:
        """Take the stage into the plan if it is not there, and leave out what need not run any more."""
        skipped = self._skipped()
        plan = [name for name in self.state["plan"] if name not in skipped]
        self.state["plan"] = plan if stage.name in plan else [*plan, stage.name]
        write_json(self.state, self.path)

    def end(self, stage: Stage) -> None:
        """Note what it took, DVC's share since the stage before included."""
        self.state["done"][stage.name], self.state["last"] = _since(self.state["last"]), time.time()
        write_json(self.state, self.path)

    def _skipped(self) -> set[str]:
        """Those planned for their data alone, all of which has been made again and is what it was: DVC skips them."""
        stages = {stage.name: stage for stage in all_stages(self.settings)}
        above, done, planned = makers(list(stages.values())), set(self.state["done"]), set(self.state["plan"])
        waiting = [name for name in planned - done if name in stages and above[name] & planned <= done]
        manifests = {name: _manifest(name) for name in waiting}
        own, now = out_of_date([stages[name] for name in waiting], manifests), recorded_outputs()
        return {
            name
            for name in waiting
            if name not in own
            and all(
                now.get(out) == self.state["before"].get(out)
                for maker in above[name] & planned
                for out in stages[maker].outs
            )
        }

    def __str__(self) -> str:
        """`stage 17 of 136, 12 min gone, about 1 h 20 min left`."""
        done, plan = self.state["done"], self.state["plan"]
        gone = _since(self.state["began"])
        missing = [name for name in plan if name not in done]
        seconds, whole = seconds_left(missing, done, known_seconds(self.settings.scale))
        seconds = max(0.0, seconds - _since(self.state["last"])) if done else seconds
        left = f", {'about' if whole else 'more than'} {in_words(seconds)} left" if seconds else ""
        return f"stage {len(done) + 1} of {len(plan)}, {in_words(gone)} gone{left}"


def _since(then: float) -> float:
    """Seconds since a time that another process noted; 0 where the clock has been put back before it meanwhile."""
    return max(0.0, time.time() - then)


def seconds_left(missing: Sequence[str], done: Mapping[str, float], known: Mapping[str, float]) -> tuple[float, bool]:
    """(seconds for the stages `missing`, whether every one of them could be estimated). A stage takes what it took
    before, times how the stages done compare with what they took before; else the mean of its kind in this run."""
    compared = [name for name in done if known.get(name)]
    pace = sum(done[name] for name in compared) / sum(known[name] for name in compared) if compared else 1.0
    kinds: dict[str, list[float]] = {}
    for name, seconds in done.items():
        kinds.setdefault(_kind(name), []).append(seconds)
    estimates = [
        pace * known[name] if name in known else mean(kinds[_kind(name)]) if _kind(name) in kinds else None
        for name in missing
    ]
    return sum(value for value in estimates if value is not None), None not in estimates


def _kind(name: str) -> str:
    return name.partition("-")[0]


def known_seconds(scale: str) -> dict[str, float]:
    """{stage: seconds} at a scale: here, last; of another machine where it has not run here yet."""
    return _noted(TABLE).get(scale, {}) | _noted(OWN).get(scale, {})


def keep_seconds() -> dict[str, int]:
    """Put what stages took here into the table in git; {scale: how many stages}."""
    table = _noted(TABLE)
    for scale in _noted(OWN):
        table[scale] = dict(sorted(known_seconds(scale).items()))
    write_json(table, TABLE)
    return {scale: len(seconds) for scale, seconds in table.items()}


def _manifest(name: str) -> str:
    path = paths.MANIFESTS / f"{name}.json"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _note(scale: str, name: str, seconds: float) -> None:
    known = _noted(OWN)
    write_json(known | {scale: known.get(scale, {}) | {name: round(seconds, 1)}}, OWN)


def _noted(path: Any) -> dict[str, dict[str, float]]:
    """{scale: {stage: seconds}} of a table, without what are no seconds."""
    return {
        scale: {stage: seconds for stage, seconds in each.items() if is_of(Amount, seconds)}
        for scale, each in read_object(path).items()
        if isinstance(each, dict)
    }


def read_object(path: Any) -> dict[str, Any]:
    """The file's content; nothing where there is none, or it was cut: it only tells how long things take."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def told(stage: Stage, settings: Settings) -> Iterator[Repro | None]:
    """The `dvc repro` around this stage, None outside one; what the stage took is noted if it ends well."""
    owner, began = pipeline_process(), time.monotonic()
    around = Repro(owner, settings) if owner is not None else None
    if around is not None:
        around.start(stage)
    yield around
    _note(settings.scale, stage.name, time.monotonic() - began)
    if around is not None:
        around.end(stage)


class Heartbeat:
    """A stream in the place of stdout that says every `SILENCE` seconds of silence that the stage is at work.

    with Heartbeat(name, around) as stream: ...
    """

    def __init__(self, name: str, around: Any = None, silence: float = SILENCE, stream: Any = None):
        self.name, self.around, self.silence, self.stream = name, around, silence, stream or sys.stdout
        self.began = self.last = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def write(self, text: str) -> int:
        self.last = time.monotonic()
        return self.stream.write(text)

    def flush(self) -> None:
        self.stream.flush()

    def _watch(self) -> None:
        while not self._ended.wait(self.last + self.silence - time.monotonic()):
            if time.monotonic() - self.last >= self.silence:
                place = f"; {self.around}" if self.around else ""
                self.write(f"{self.name}: at work for {in_words(time.monotonic() - self.began)}{place}\n")
                self.flush()

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()


def in_words(seconds: float) -> str:
    """`40 s`, `12 min`, `1 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
