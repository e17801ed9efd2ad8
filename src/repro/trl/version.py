"""The supported versions of TRL."""

import warnings
from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

from repro.errors import Refused

SUPPORTED = "1.16"  # what is tested, with its patch releases; later ones of the same major version get a warning


class UnsupportedTRL(Refused, ImportError):
    """One sentence: what is installed, what is needed, and the command that installs it."""


def require_trl() -> None:
    """UnsupportedTRL if TRL is missing, older, or of another major version; a warning if it is newer than tested."""
    try:
        installed = Version(version("trl"))
    except PackageNotFoundError:
        raise UnsupportedTRL(f"TRL is not installed: `make extra-trl` adds TRL {SUPPORTED}") from None
    here, tested = installed.release[:2], Version(SUPPORTED).release
    if here < tested or here[0] > tested[0]:
        raise UnsupportedTRL(
            f"TRL {installed} is installed, but repro.trl extends the trainer of TRL {SUPPORTED}: `make extra-trl` "
            "installs it"
        )
    if here > tested:
        warnings.warn(f"repro.trl is tested with TRL {SUPPORTED}, and TRL {installed} is installed", stacklevel=3)
