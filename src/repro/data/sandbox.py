"""One function in a process of its own for each call, with limits on its time and its memory.

For code that may hang, exhaust memory or crash on a language model's output. A keeper, started once, does the slow
imports and forks a process for each call: what hangs or crashes costs its own call, and each call begins from the same
state. That is a process with limits, not a jail: on what its user may read, and on the network, it has no hold.
"""

import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from typing import Any, Literal

from repro.errors import Refused

START_SECONDS = 120.0  # for the keeper's imports, even on a busy machine
MORE_SECONDS = 5.0  # that the keeper may take to end a call whose time is up
Outcome = Literal["value", "error", "timeout", "memory", "crash"]


class SandboxFailed(Refused, RuntimeError):
    """One sentence: why the child process cannot be started, and the remedy."""


@dataclass(frozen=True)
class Answer:
    """The outcome of a call: its `value`, or why there is none, with the error's text."""

    outcome: Outcome
    value: Any = None
    error: str = ""


class Sandbox:
    """Calls one function, sequentially; safe to share between threads.

    `factory`: "module:function"; called in the keeper, it does slow imports and returns the function to call, whose
    arguments and value must be JSON. `seconds`: wall time limit per call. `megabytes`: limit on the address space of
    the process of a call, where the system has such a limit. A call sees neither the caller's environment nor its
    standard streams, and writes no file. A keeper that has died is replaced before the next call, and a call whose
    process died is made once more, since the cause may lie elsewhere, as in the kernel running out of memory.
    """

    def __init__(self, factory: str, *, seconds: float, megabytes: int):
        self.factory, self.seconds, self.megabytes = factory, seconds, megabytes
        self._lock, self._keeper, self._owner, self._worked = threading.Lock(), None, None, False

    def call(self, *arguments: Any) -> Answer:
        """Never raises because of the function; SandboxFailed if no keeper could ever be started."""
        with self._lock:
            answer = self._attempt(arguments)
            return self._attempt(arguments) if answer.outcome == "crash" else answer

    def close(self) -> None:
        """End the keeper."""
        with self._lock:
            self._stop()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _attempt(self, arguments: tuple) -> Answer:
        try:
            self._start()
        except SandboxFailed as error:
            if not self._worked:
                raise
            return Answer("crash", error=str(error))  # a problem of the machine should not end a long run
        try:
            self._connection.send_bytes(json.dumps(arguments).encode())
            if self._connection.poll(self.seconds + MORE_SECONDS):
                return Answer(*json.loads(self._connection.recv_bytes()))
            answer = Answer("timeout", error=f"no answer within {self.seconds:g} s")
        except (EOFError, OSError):
            answer = Answer("crash", error="the child process ended")
        self._stop()
        return answer

    def _start(self) -> None:
        if self._keeper is not None and self._owner == os.getpid() and self._keeper.poll() is None:
            return
        self._stop()
        try:
            self._connection, theirs = Pipe()
            with theirs:
                self._keeper, self._owner = self._spawn(theirs.fileno()), os.getpid()
            if self._connection.poll(START_SECONDS):
                answer = Answer(*json.loads(self._connection.recv_bytes()))
            else:
                answer = Answer("timeout", error=f"not ready after {START_SECONDS:g} s")
        except (EOFError, OSError) as error:  # it has ended; no memory, no more processes
            answer = Answer("crash", error=str(error) or "it ended")
        if answer.outcome != "value":
            self._stop()
            raise SandboxFailed(f"the child process for {self.factory} does not start: {answer.error}")
        self._worked = True

    def _spawn(self, descriptor: int) -> subprocess.Popen:
        environment = {
            "PATH": os.defpath,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONDONTWRITEBYTECODE": "1",  # the parent has compiled what it shares with the keeper
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        }
        told = [self.factory, str(self.seconds), str(self.megabytes), str(descriptor)]
        command = [sys.executable, "-P", "-c", "from repro.data.sandbox import keep; keep()", *told]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        return subprocess.Popen(command, env=environment, pass_fds=[descriptor], start_new_session=True, **quiet)

    def _stop(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None and self._owner == os.getpid():  # in a forked process, the keeper is the parent's
            self._connection.close()
            keeper.kill()
            keeper.wait()


def keep() -> None:
    """The keeper: answers arguments with [outcome, value, error], until the caller is gone."""
    factory, seconds, megabytes, descriptor = sys.argv[1:]
    caller = Connection(int(descriptor))
    module, _, name = factory.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)()
    except Exception as error:
        return _send(caller, "error", None, " ".join((str(error) or type(error).__name__).split()))
    gc.freeze()  # so that the memory of what is loaded stays shared
    _send(caller, "value", None, "")
    with suppress(EOFError, OSError):
        while True:
            _send(caller, *_forked(function, json.loads(caller.recv_bytes()), float(seconds), int(megabytes), caller))


def _forked(function: Callable, arguments: list, seconds: float, megabytes: int, caller: Connection) -> list:
    """[outcome, value, error] of one call."""
    fork = get_context("fork")
    receiving, sending = fork.Pipe(duplex=False)
    process = fork.Process(target=_call, args=(function, arguments, seconds, megabytes, sending, caller))
    process.start()
    sending.close()
    try:
        if receiving.poll(seconds):
            return json.loads(receiving.recv_bytes())
        return ["timeout", None, f"no answer within {seconds:g} s"]
    except (EOFError, OSError):
        return ["crash", None, "the process of the call ended without a result"]
    finally:
        process.kill()
        process.join()
        receiving.close()


def _call(
    function: Callable, arguments: list, seconds: float, megabytes: int, keeper: Connection, caller: Connection
) -> None:
    """In the process of its own."""
    caller.close()
    most = {"CPU": int(time.process_time() + seconds) + 2, "AS": megabytes << 20, "FSIZE": 0, "CORE": 0}
    for name, limit in most.items():
        with suppress(ValueError, OSError):  # macOS has no limit on address space
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    try:
        result = ["value", function(*arguments), ""]
    except MemoryError:
        result = ["memory", None, f"more than {megabytes} MB"]
    except BaseException as error:
        result = ["error", None, f"{type(error).__name__}: {error}"[:500]]
    _send(keeper, *result)


def _send(connection: Connection, *content: Any) -> None:
    connection.send_bytes(json.dumps(content).encode())
