"""The supported version of verl."""

from importlib.metadata import PackageNotFoundError, entry_points, version

from repro.errors import Refused

SUPPORTED = "0.9.1"
NAME = "repro"  # of our entry point in the group verl.plugins, our trainer and our policy loss
AHEAD = "repro_colocate_async"  # of our trainer that has groups sampled before their step, as verl's colocate_async


class UnsupportedVerl(Refused, RuntimeError):
    """One sentence: what is installed, what is needed, and the command that installs it."""


def require_verl() -> None:
    """UnsupportedVerl if verl is missing or has another version: we extend its trainer, which changes between versions.

    verl logs a failing plugin only at DEBUG level, so this is called where users see the error.
    """
    try:
        installed = version("verl")
    except PackageNotFoundError:
        raise UnsupportedVerl(f"verl is not installed: `make extra-verl` adds verl {SUPPORTED}") from None
    if installed != SUPPORTED:
        raise UnsupportedVerl(
            f"verl {installed} is installed, but repro.verl extends the trainer of verl {SUPPORTED}: "
            f"`make extra-verl` installs it"
        )


def require_plugin() -> None:
    """UnsupportedVerl if verl's processes would not load our plugin."""
    if NAME not in {point.name for point in entry_points(group="verl.plugins")}:
        raise UnsupportedVerl(
            "this installation of repro does not register its verl plugin: reinstall it with `pip install --no-deps "
            "--editable .` (or `make setup`)"
        )
