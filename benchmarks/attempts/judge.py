"""An answer's code that turns on its sandbox, where a judge of answers would be: for `attacks`."""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time


def make():
    """The function that a sandbox calls: act(what, word) does `what`; anything else is compared with the word."""

    def act(what: str, word: str) -> str:
        if what in ACTS:
            ACTS[what](word)
        return "equal" if what == word else "different"

    return act


def forge(word: str) -> None:
    for number in range(256):
        with contextlib.suppress(OSError):
            os.write(number, b'["value", "equal", ""]\n' * 3)


def write(word: str) -> None:
    with open(word, "w") as file:
        file.write("x")


def fork_bomb(word: str) -> None:
    while True:
        os.fork()


def flood(word: str) -> None:
    while True:
        os.write(1, b"x" * 65536)


def deaf(word: str) -> None:
    for number in range(1, 32):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def read(path: str) -> None:
    with open(path) as file:
        raise RuntimeError(file.read(100))


ACTS = {
    "forge": forge,
    "write": write,
    "fork": fork_bomb,
    "flood": flood,
    "deaf": deaf,
    "sleep": lambda word: time.sleep(600),
    "memory": lambda word: bytearray(64 << 30),
    "recurse": lambda word: ACTS["recurse"](word),
    "exit": lambda word: os._exit(0),
    "abort": lambda word: os.abort(),
    "segfault": lambda word: ctypes.string_at(0),
    "quit": lambda word: sys.exit(0),
    "interrupt": lambda word: signal.raise_signal(signal.SIGINT),
    "read a file": lambda word: read("/etc/hostname"),
    "read the parent": lambda word: read(f"/proc/{os.getppid()}/environ"),
    "command": lambda word: subprocess.run(["touch", word], check=True),
    "shell": lambda word: os.execl("/bin/sh", "sh", "-c", f"touch {word}"),
    "network": lambda word: socket.create_connection(("127.0.0.1", 1), timeout=1),
    "datagram": lambda word: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)),
    "kill the parent": lambda word: os.kill(os.getppid(), signal.SIGKILL),
    "unlimited": lambda word: resource.setrlimit(resource.RLIMIT_CPU, (-1, -1)) or deaf(word),
    "threads": lambda word: [threading.Thread(target=deaf, args=("",)).start() for _ in range(10_000)],
    "link": lambda word: os.symlink("/etc/hostname", word),
    "rename": lambda word: os.rename("params.yaml", word),
    "mode": lambda word: os.chmod(".", 0),
}
