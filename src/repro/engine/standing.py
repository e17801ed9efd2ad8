"""A crew that stands between the stages of one `dvc repro`.

A stage of the pipeline is a process of its own: it starts for seconds before it trains, and writes a report afterwards,
and the workers would wait. So the first training stage of a `dvc repro` starts one more process, with a crew, and the
stages ask it for their runs; while nobody asks, it trains the runs that will be wanted next. It ends with the
`dvc repro` that it serves, or when nothing is left to train.
"""

import contextlib
import json
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from repro import paths
from repro.engine.crew import Crew, News
from repro.files import write_json

PATIENCE = 60.0  # seconds for which a crew without work waits for the next stage
START = 120.0  # seconds within which the process must answer


def pipeline_process() -> int | None:
    """The process of the `dvc` command that this one runs under; None outside of it."""
    if "DVC_STAGE" not in os.environ:
        return None
    import psutil

    for parent in psutil.Process().parents():
        with contextlib.suppress(psutil.Error):
            if any(Path(word).name in ("dvc", "dvc.exe") for word in parent.cmdline()[:3]):
                return parent.pid
    return None


def ask_standing_crew(owner: int, size: int, wanted: Sequence[Any], later: Sequence[Any]) -> Iterator[News]:
    """News of `wanted` until the last of them is done or one has failed. ConnectionError when there is no crew to be
    had, or it ends before they are done: the runs are then at their last checkpoints."""
    with _connect(owner, size) as connection:
        connection.send((list(wanted), list(later)))
        missing = {run.folder for run in wanted}
        while missing:
            try:
                news = connection.recv()
            except (EOFError, OSError) as error:
                raise ConnectionError("the crew that trains ahead is gone") from error
            yield news
            if news.kind == "done":
                missing.discard(news.run.folder)


def _connect(owner: int, size: int) -> Connection:
    """A connection to the crew that serves `owner`, which is started where there is none."""
    file = paths.BUILD / "crew.json"
    with contextlib.suppress(OSError, ValueError, KeyError, EOFError):
        return _dial(file, owner)
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "repro.engine.standing", str(owner), str(size), str(file)]
    with (paths.BUILD / "crew.log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=paths.ROOT, start_new_session=True
        )
    limit = time.monotonic() + START
    while time.monotonic() < limit and process.poll() is None:
        with contextlib.suppress(OSError, ValueError, KeyError, EOFError):
            return _dial(file, owner)
        time.sleep(0.1)
    raise ConnectionError(f"no crew that trains ahead could be started; see {paths.BUILD / 'crew.log'}")


def _dial(file: Path, owner: int) -> Connection:
    known = json.loads(file.read_text())
    if known["owner"] != owner:
        raise ValueError("it serves another pipeline")
    return Client(known["address"], authkey=bytes.fromhex(known["key"]))


def stand(owner: int, size: int, file: Path) -> None:
    """Serve the stages of process `owner`, one after the other, until it ends or there is nothing to do."""
    import psutil

    key = secrets.token_bytes(32)
    callers: queue.Queue[Connection] = queue.Queue()
    with Listener(authkey=key) as listener:
        threading.Thread(target=_accept, args=(listener, callers), daemon=True).start()
        file.touch(mode=0o600)
        write_json({"owner": owner, "address": listener.address, "key": key.hex()}, file)
        file.chmod(0o600)
        crew, caller, asked, busy_at = Crew(size), None, set(), time.monotonic()
        try:
            while psutil.pid_exists(owner) and time.monotonic() - busy_at < PATIENCE:
                with contextlib.suppress(queue.Empty, EOFError, OSError):
                    caller = callers.get_nowait()
                    wanted, later = caller.recv()
                    asked = {run.folder for run in wanted}
                    crew.ask(wanted, later)
                for news in crew.listen(0.2):
                    if caller is not None and news.run.folder in asked:
                        try:
                            caller.send(news)
                        except OSError:
                            caller = None  # its stage is over
                if not crew.idle:
                    busy_at = time.monotonic()
        finally:
            crew.dismiss()
            file.unlink(missing_ok=True)


def _accept(listener: Listener, callers: queue.Queue) -> None:
    while True:
        try:
            callers.put(listener.accept())
        except Exception:  # a caller without the key, or one that hung up
            time.sleep(0.1)


if __name__ == "__main__":
    stand(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
