"""The supported versions of TRL."""

import warnings
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from packaging.version import Version

from repro.errors import Refused

OLDEST, NEWEST = "1.14", "1.16"  # tested, with their patch releases; later ones of the same major version get a warning
TRITON = "1.15"  # whose own loss needs Triton, which a CPU's torch does not bring


class UnsupportedTRL(Refused, ImportError):
    """One sentence: what is installed, what is needed, and the command that installs it."""


def require_trl() -> None:
    """UnsupportedTRL if TRL is missing, older, of another major version, or needs Triton where there is none; a warning
    if it is newer than tested."""
    try:
        installed = Version(version("trl"))
    except PackageNotFoundError:
        raise UnsupportedTRL(f"TRL is not installed: `make extra-trl` adds TRL {NEWEST}") from None
    here, oldest, newest = installed.release[:2], Version(OLDEST).release, Version(NEWEST).release
    if here < oldest or here[0] > newest[0]:
        raise UnsupportedTRL(
            f"TRL {installed} is installed, but repro.trl extends the trainer of TRL {OLDEST} to {NEWEST}: "
            f"`make extra-trl` installs TRL {NEWEST}"
        )
    if here == Version(TRITON).release and find_spec("triton") is None:
        raise UnsupportedTRL(
            f"TRL {installed} computes its loss with Triton alone, which is not installed: `make extra-trl` installs "
            f"TRL {NEWEST}, which does without"
        )
    if here > newest:
        warnings.warn(f"repro.trl is tested with TRL {OLDEST} to {NEWEST}; {installed} is installed", stacklevel=3)
