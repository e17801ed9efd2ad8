"""How much of each phase's time is matrix products at the shapes that occur, by torch's profiler.

A product's own time is hardly changed by being recorded, that of everything around it is: so products are compared with
the time of a phase that was not recorded. The profiler reads the wall clock, so this needs a core that is idle.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch.profiler import ProfilerActivity, profile, record_function

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu")  # its softmax too
PHASE = "phase: "


def named(timed: Callable[[str], AbstractContextManager]) -> Callable[[str], AbstractContextManager]:
    """`Trainer.timed`, whose phases the profiler gets to see."""

    @contextmanager
    def both(phase: str) -> Iterator[None]:
        with timed(phase), record_function(PHASE + phase):
            yield

    return both


@contextmanager
def counted(seconds: dict[str, float], phase: str = "") -> Iterator[None]:
    """Add the seconds of the products inside the context to `seconds`, by phase; all of them are of `phase`, if it is
    given."""
    with (
        profile(activities=[ProfilerActivity.CPU]) as recorded,
        named(lambda _: nullcontext())(phase) if phase else nullcontext(),
    ):
        yield
    for name, own in seconds_by_phase(recorded.events()).items():
        seconds[name] += own


def seconds_by_phase(events: list) -> dict[str, float]:
    """Seconds of the products among `events`, the profiler's, by the phase that they lie in; others are left out."""
    phases = [event for event in events if event.name.startswith(PHASE)]
    spans = [(phase.time_range, phase.name.removeprefix(PHASE)) for phase in phases]
    seconds: dict[str, float] = defaultdict(float)
    for event in events:
        if event.name.removeprefix("aten::").removesuffix("_backward") in PRODUCTS:
            name = next((name for span, name in spans if span.start <= event.time_range.start <= span.end), None)
            if name is not None:
                seconds[name] += 1e-6 * event.self_cpu_time_total
    return dict(seconds)
