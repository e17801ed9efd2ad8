"""Which verl this is written for."""

from importlib.metadata import PackageNotFoundError, entry_points, version

SUPPORTED = "0.9.1"
NAME = "repro"  # of our entry point in the group verl.plugins, of our trainer, of our policy loss


class UnsupportedVerl(RuntimeError):
    """One sentence: what is installed, what is needed, and the command that installs it."""


def require_verl() -> None:
    """UnsupportedVerl where verl is missing or of another version: its trainer is extended, and moves between versions.

    verl itself logs a plugin that fails at DEBUG alone; hence this, called wherever a person can see it.
    """
    try:
        installed = version("verl")
    except PackageNotFoundError:
        raise UnsupportedVerl(f"verl is not installed: `make extra-verl` adds verl {SUPPORTED}") from None
    if installed != SUPPORTED:
        raise UnsupportedVerl(
            f"verl {installed} is installed, but repro.verl extends the trainer of verl {SUPPORTED}: "
            f"`make extra-verl` puts that in its place"
        )


def require_plugin() -> None:
    """UnsupportedVerl where verl's processes would not load our plugin."""
    if NAME not in {point.name for point in entry_points(group="verl.plugins")}:
        raise UnsupportedVerl(
            "this installation of repro does not announce its verl plugin: `pip install --no-deps --editable .` (or "
            "`make setup`) renews it"
        )
