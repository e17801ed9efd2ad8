"""A process that ends with its owner, whatever the clock does meanwhile."""

import subprocess
import sys
import time

CHILD = """
import os, sys, time
import psutil
from repro.engine.workers import end_with

end_with(int(sys.argv[1]))
first = psutil._psplatform.boot_time() if hasattr(psutil._psplatform, "boot_time") else 0.0
psutil._psplatform.boot_time = lambda: first + float(sys.argv[2])  # as after the clock was set
print("ready", flush=True)
time.sleep(30)
"""


def test_a_worker_outlives_a_change_of_the_clock_and_not_its_owner():
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    shifts = [3600.0, -2.0]
    command = [sys.executable, "-c", CHILD, str(owner.pid)]
    children = [subprocess.Popen([*command, str(shift)], stdout=subprocess.PIPE, text=True) for shift in shifts]
    try:
        assert [child.stdout.readline() for child in children] == ["ready\n", "ready\n"]
        time.sleep(1.5)  # three looks at the owner
        assert [child.poll() for child in children] == [None, None]
        owner.kill()
        owner.wait()
        assert [child.wait(timeout=10) for child in children] == [1, 1]
    finally:
        for process in (owner, *children):
            process.kill()
            process.wait()
