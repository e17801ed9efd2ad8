"""The supported version of TRL."""

from importlib.metadata import PackageNotFoundError, version

from repro.errors import Refused

SUPPORTED = "1.16"  # and its patch releases


class UnsupportedTRL(Refused, ImportError):
    """One sentence: what is installed, what is needed, and the command that installs it."""


def require_trl() -> None:
    """UnsupportedTRL if TRL is missing or is another: we extend its trainer, which changes between versions."""
    try:
        installed = version("trl")
    except PackageNotFoundError:
        raise UnsupportedTRL(f"TRL is not installed: `make extra-trl` adds TRL {SUPPORTED}") from None
    if installed.split(".")[:2] != SUPPORTED.split("."):
        raise UnsupportedTRL(
            f"TRL {installed} is installed, but repro.trl extends the trainer of TRL {SUPPORTED}: `make extra-trl` "
            "installs it"
        )
