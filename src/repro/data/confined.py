"""What a process can give up for good on Linux: files, the network, other processes; each where the system has it.

Landlock takes away files; it is asked for by its three system calls, whose numbers are those of every architecture.
libseccomp, which most distributions install with their base, takes away system calls. Neither needs privileges, and a
container's defaults allow both. Elsewhere the process keeps what it has, and `held` says so.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

NO_NEW_PRIVILEGES, PARENT_DEATH_SIGNAL, DUMPABLE, SUBREAPER = 38, 1, 4, 36  # of prctl
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
READ_FILE, READ_FOLDER = 1 << 2, 1 << 3  # of Landlock
# {ABI: rights to files that it knows}: the first thirteen, then moving, cutting, controlling devices.
KNOWN = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/zero", "/dev/urandom")
ALLOW, REFUSE = 0x7FFF0000, 0x00050000  # of libseccomp; the latter with the error that the call returns
UNEQUAL, MASKED_EQUAL, THREAD = 1, 7, 0x00010000  # of libseccomp; of clone
WHOLE = 0xFFFFFFFF  # the 32 bits of an int; those above it are the caller's to choose
# Of fcntl and ioctl: who gets a signal when a descriptor is ready, and which signal, SIGKILL too.
OWNERS = {"fcntl": (8, 10, 15), "ioctl": (0x8901, 0x8902)}  # F_SETOWN, F_SETSIG, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP

FORBIDDEN = {
    "network": ["socket", "io_uring_setup"],
    "processes": [
        *("fork", "vfork", "execve", "execveat", "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"),
        *("pidfd_open", "pidfd_send_signal", "pidfd_getfd", "ptrace", "process_vm_readv", "process_vm_writev"),
        *("setpriority", "sched_setaffinity", "sched_setscheduler", "setns", "unshare", "bpf", "reboot"),
        *("sched_setparam", "sched_setattr", "ioprio_set", "kcmp", "perf_event_open", "process_madvise"),
        *("migrate_pages", "move_pages", "shmget", "shmat", "semget", "msgget", "mq_open"),  # what processes share
        *("add_key", "request_key", "keyctl"),
    ],
    "attributes": [  # of files, which Landlock leaves to their owner
        *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes"),
        *("utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr"),
        *("fremovexattr", "mount", "umount2", "open_tree", "move_mount", "chroot", "pivot_root"),
    ],
}


class _Comparison(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("kind", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


@dataclass(frozen=True)
class Confinement:
    """Prepared once, entered by each process that is to be confined. `held`: of "files", "network" and "processes"."""

    held: tuple[str, ...]
    _libc: Any = None
    _ruleset: int | None = None
    _filter: tuple[Any, Any] | None = None

    def enter(self) -> None:
        """Give up what is `held`, for this process and all that it might start. OSError if that fails now."""
        if self._ruleset is not None:
            _call(self._libc.prctl, NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            _call(self._libc.syscall, RESTRICT_SELF, self._ruleset, 0)
        if self._filter is not None:
            library, context = self._filter
            if failed := library.seccomp_load(context):
                raise OSError(-failed, f"seccomp_load: {os.strerror(-failed)}")


def prepare(readable: Iterable[str] = ()) -> Confinement:
    """What this system can hold, with Python's own folders, the system's libraries and `readable` left to read."""
    if not sys.platform.startswith("linux"):
        return Confinement(())
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = filter = None
    with suppress(OSError):
        ruleset = _landlock(libc, [*SYSTEM, sys.prefix, sys.base_prefix, *readable])
    with suppress(OSError, AttributeError):
        filter = _seccomp()
    files = Confinement(("files",), libc, ruleset) if ruleset is not None else None
    others = Confinement(("network", "processes"), libc, None, filter) if filter is not None else None
    works = [each for each in (files, others) if each is not None and _can_be_entered(each)]
    return Confinement(
        tuple(held for each in works for held in each.held),
        libc,
        ruleset if files in works else None,
        filter if others in works else None,
    )


def _can_be_entered(confinement: Confinement) -> bool:
    """Whether a process that enters it lives: a kernel may know a call and yet refuse it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            confinement.enter()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; nothing happens where the system has no such thing."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            _call(ctypes.CDLL(None, use_errno=True).prctl, option, value, 0, 0, 0)


def _landlock(libc: Any, readable: Iterable[str]) -> int:
    """A ruleset under which nothing can be read but what lies in `readable`, and nothing written."""
    abi = _call(libc.syscall, CREATE_RULESET, None, 0, 1)
    wanted = _Ruleset(KNOWN[min(abi, max(KNOWN))], 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24  # an older kernel knows less of it
    ruleset = _call(libc.syscall, CREATE_RULESET, ctypes.byref(wanted), size, 0)
    for path in dict.fromkeys(map(os.path.realpath, readable)):
        if not os.path.exists(path):
            continue
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = READ_FILE | READ_FOLDER if os.path.isdir(path) else READ_FILE
            _call(libc.syscall, ADD_RULE, ruleset, 1, ctypes.byref(_Beneath(allowed, folder)), 0)
        finally:
            os.close(folder)
    return ruleset


def _seccomp() -> tuple[Any, Any]:
    """libseccomp and a filter that refuses what is FORBIDDEN, and starts threads but no processes."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Comparison))
    ]
    context = library.seccomp_init(ALLOW)
    if not context:
        raise OSError(errno.ENOMEM, "seccomp_init")

    def refuse(name: str, error: int, *comparisons: _Comparison) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # this architecture has it
            array = (_Comparison * len(comparisons))(*comparisons) if comparisons else None
            if failed := library.seccomp_rule_add_array(context, REFUSE | error, number, len(comparisons), array):
                raise OSError(-failed, f"seccomp_rule_add: {name}")

    for names in FORBIDDEN.values():
        for name in names:
            refuse(name, errno.EPERM)
    refuse("clone", errno.EPERM, _Comparison(0, MASKED_EQUAL, THREAD, 0))
    refuse("prlimit64", errno.EPERM, _Comparison(0, UNEQUAL, 0, 0))  # the limits of another process, its seconds too
    for name, requests in OWNERS.items():
        for request in requests:
            refuse(name, errno.EPERM, _Comparison(1, MASKED_EQUAL, WHOLE, request))
    refuse("clone3", errno.ENOSYS)  # its flags cannot be seen; libraries then use clone
    return library, context


def _call(function: Any, *arguments: Any) -> int:
    result = function(*arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
