"""`python` and `dvc` that start at once, for the tests of the whole pipeline: processes forked from one that has
imported the libraries, none of ours, so that each stage reads the project's code anew.

A start of a stage, of its kernel, of its workers and of DVC is ten seconds of imports. The programs' folder goes first
on PATH; each hands its words, folder, environment and open files to the server and ends with the status of the fork.
"""

import ast
import atexit
import fcntl
import gc
import importlib
import multiprocessing.spawn
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.modules.setdefault("rfc3987_syntax", None)  # as in repro.pipeline.run; tests, too, import this file first
LIBRARIES = (
    *("dvc.cli", "dvc.repo", "dvc.repo.reproduce", "dvc.commands.repro", "dvc.output", "dvc.stage.run"),
    *("papermill", "nbclient", "nbconvert", "jupyter_client.manager", "ipykernel.kernelapp", "ipykernel.ipkernel"),
    *("ipykernel.debugger", "pygments.formatters.html", "pygments.lexers.python", "nh3", "latex2mathml.converter"),
    *("scmrepo.git.backend", "dulwich.porcelain", "reasoning_gym", "seaborn"),
    *("IPython.core.magics", "IPython.display", "pydantic", "ruamel.yaml", "jinja2", "psutil", "cloudpickle"),
    *("altair", "pandas", "pyarrow.parquet", "scipy.stats", "scipy.optimize", "scipy.special", "sympy", "tabulate"),
    *("matplotlib.figure", "matplotlib.axes", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
    *("torch", "torch._dynamo", "transformers.models.qwen2.modeling_qwen2", "tokenizers", "safetensors.torch"),
)
CLIENT = """#!{python} -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as link:
    files = [file for file in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{{file}}")]
    files.remove(link.fileno())
    link.connect({address!r})
    words = repr(({first!r} + sys.argv[1:], files, os.getcwd(), dict(os.environ))).encode()
    socket.send_fds(link, [len(words).to_bytes(8, "big")], files)
    link.sendall(words)
    sys.exit(int(link.recv(4) or b"1"))
"""


@contextmanager
def programs(folder: Path) -> Iterator[Path]:
    """The folder of the two programs, while the server runs. `folder`: an empty one, with a short name."""
    address = str(folder / "door")
    for name, first in {"python": [], "dvc": ["-m", "dvc"]}.items():
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(CLIENT.format(python=sys.executable, address=address, first=first))
        program.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command, pipe = [sys.executable, __file__, address], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as server:  # it ends with its stdin
        assert server.stdout.readline(), "a library of LIBRARIES could not be imported"
        yield folder / "bin"


def served(door: socket.socket) -> list[str]:
    """The words of one call, in the process forked for it; the server itself never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks leave nothing behind
    while True:
        ready, *_ = select.select([door, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        link, _ = door.accept()
        if os.fork():
            link.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        door.close()
        size, files, *_ = socket.recv_fds(link, 8, 64)
        call = ast.literal_eval(link.makefile("rb").read(int.from_bytes(size, "big")).decode())
        if worker := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            with suppress(BrokenPipeError):
                link.send(b"%d" % (status if status >= 0 else 128 - status))
            os._exit(0)
        return taken_over(link, files, call)


def taken_over(link: socket.socket, files: list[int], call: tuple) -> list[str]:
    """This process in place of the one that called, its files under its numbers: it ends when that one does."""
    words, numbers, folder, environment = call
    own, *others = [fcntl.fcntl(file, fcntl.F_DUPFD, 500) for file in (link.detach(), *files)]
    os.closerange(3, 500)
    for file, number in zip(others, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.environ.pop("JPY_PARENT_PID", None)  # a kernel would look for it among its parents
    search = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [folder, *search]
    sys.executable = str(Path(sys.argv[1]).with_name("bin") / "python")  # kernels, too
    multiprocessing.spawn.set_executable(sys.executable)

    def watch() -> None:
        socket.socket(fileno=own).recv(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return words


if __name__ == "__main__":
    del sys.path[0]  # the tests
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as a kernel sets it before the import
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # or the debugger of kernels warns
    sys.modules["pycosat"] = type(sys)("pycosat")  # as in repro.tasks.queries
    for library in LIBRARIES:
        importlib.import_module(library)
    sys.modules["pandas"].options.display.max_columns = 20  # as imported by a kernel, which is no terminal
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen(64)
        print(flush=True)
        words = served(listening)
    [option, what, *arguments] = words[next(place for place, word in enumerate(words) if word in ("-c", "-m")) :]
    sys.argv[:] = [option, *arguments]
    try:
        exec(what) if option == "-c" else runpy.run_module(what, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError):  # closed, as by what tracks the resources of workers
            stream.flush()
    os._exit(status)  # what is shared with the server need not be taken apart
