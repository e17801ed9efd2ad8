"""The odd surroundings: {name: (command line, how its place is odd, why it may end well)}."""

import os
import resource
from typing import Any

from benchmarks.attempts.places import SMALL, holds, link, links_in_a_circle, loop

CHECK, LIST, VERIFY = ("repro.pipeline", "check"), ("repro.paper_scale", "list"), ("repro.pipeline", "plan")
WHY, SHOW = ("repro.pipeline", "why", "train", "cost-aware"), ("repro.paper_scale", "show", "paper-qwen3-4b")
TOUR, ATLAS, OWN = ("repro.tour", "mine.py"), ("repro.atlas", "list"), ("repro.verl", "--arm", "grpo", "--data")
PAGE = ("repro.pipeline", "why", "policy_report")
NOTEBOOK = "notebooks/studies/base_policy.ipynb"
SAME, TOLD = "it changes nothing that is read", "it only tells what there is"
DATA = (*OWN, "mine.jsonl", "--model", "src/repro/policy/pretrained", "--check")
PIPE, FOLDER, ZERO = os.mkfifo, os.mkdir, link("/dev/zero")
KINDS: dict[str, Any] = {"a folder": FOLDER, "a pipe": PIPE, "a link to itself": loop, "endless zeros": ZERO}
KINDS |= {"a link to nothing": link("nowhere"), "noise": holds(bytes(range(255, 127, -1)) * 9)}
ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
SAMPLER = b"def mine(rollouts, progress, rng):\n    return rollouts\n"

PLACES: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    **{f"params.yaml is {kind}": (CHECK, {"put": {"params.yaml": put}}, "") for kind, put in KINDS.items()},
    **{f"dvc.yaml is {kind}": (WHY, {"put": {"dvc.yaml": put}}, "") for kind, put in KINDS.items()},
    **{f"dvc.lock is {kind}": (CHECK, {"put": {"dvc.lock": put}}, "") for kind, put in KINDS.items()},
    **{f"atlas/design.yaml is {kind}": (ATLAS, {"put": {"atlas/design.yaml": put}}, "") for kind, put in KINDS.items()},
    **{f"data are {kind}": (DATA, {"put": {"mine.jsonl": put}}, "") for kind, put in KINDS.items()},
    **{f"a sampler is {kind}": (TOUR, {"put": {"mine.py": put}}, "") for kind, put in KINDS.items()},
    **{f"a notebook is {kind}": (PAGE, {"put": {NOTEBOOK: put}}, "") for kind, put in KINDS.items()},
    **{f"the lock's holders are {kind}": (CHECK, {"put": {".dvc/tmp/rwlock": put}}, "") for kind, put in KINDS.items()},
    "build is a file": (("repro.pipeline", "manifest"), {"put": {"build": holds(b"x")}}, ""),
    "build is a link to itself": (("repro.pipeline", "manifest"), {"put": {"build": loop}}, ""),
    "build is a link to nothing": (("repro.pipeline", "manifest"), {"put": {"build": link("/proc/none")}}, ""),
    "configs is a file": (LIST, {"put": {"configs": holds(b"x")}}, ""),
    "notebooks is a file": (PAGE, {"put": {"notebooks": holds(b"x")}}, ""),
    "notebooks lead in a circle": (PAGE, {"put": {"notebooks": links_in_a_circle}}, ""),
    "the root is a file": (CHECK, {"set": {"REPRO_ROOT": f"ROOT/{SMALL}"}}, ""),
    "the root is nowhere": (CHECK, {"set": {"REPRO_ROOT": "/nowhere"}}, ""),
    "the root is a link to itself": (CHECK, {"put": {"round": loop}, "set": {"REPRO_ROOT": "ROOT/round"}}, ""),
    "the root has a name of 5,000 letters": (CHECK, {"set": {"REPRO_ROOT": "/" + "x" * 5000}}, ""),
    "the root is an empty folder": (CHECK, {"put": {"void": FOLDER}, "set": {"REPRO_ROOT": "ROOT/void"}}, ""),
    "no project around": (CHECK, {"set": {"REPRO_ROOT": None}, "run": 'cd / && exec "$@"'}, ""),
    "the working directory is gone": (
        CHECK,
        {"put": {"void": FOLDER}, "set": {"REPRO_ROOT": None}, "at": "void", "run": 'rmdir ../void && exec "$@"'},
        "",
    ),
    "threads that are no number": (CHECK, {"set": {"OMP_NUM_THREADS": "abc", "MKL_NUM_THREADS": "-1"}}, SAME),
    "a home that is a file": (CHECK, {"set": {"HOME": f"ROOT/{SMALL}"}}, SAME),
    "a home that is nowhere": (DATA, {"put": {"mine.jsonl": holds(b"{")}, "set": {"HOME": "/nowhere/x"}}, ""),
    "no home": (CHECK, {"set": {"HOME": None}}, SAME),
    "caches of models in a file": (DATA, {"put": {"mine.jsonl": holds(b"{")}, "set": {"HF_HOME": f"ROOT/{SMALL}"}}, ""),
    "no folder for what is temporary": (CHECK, {"set": {"TMPDIR": "/nowhere"}}, SAME),
    "a terminal of no width": (LIST, {"set": {"COLUMNS": "0"}}, TOLD),
    "a terminal of width abc": (("repro.pipeline", "--help-me"), {"set": {"COLUMNS": "abc"}}, ""),
    "a time zone that is none": (CHECK, {"set": {"TZ": "Nowhere/At All"}}, SAME),
    "a GPU that is none": (CHECK, {"set": {"CUDA_VISIBLE_DEVICES": "abc"}}, SAME),
    "a shell that is none": (CHECK, {"set": {"SHELL": "/nowhere/sh"}}, SAME),
    "a screen of ASCII, a scale": (SHOW, {"set": ASCII}, TOLD),
    "a screen of ASCII, a list": (ATLAS, {"set": ASCII}, TOLD),
    "a screen of ASCII, an error": (("repro.pipeline", "run", "é"), {"set": ASCII}, ""),
    "a screen of ASCII, an arm": (WHY, {"set": ASCII}, TOLD),
    "no docstrings": (LIST, {"flags": ("-OO",)}, TOLD),
    "no docstrings, help": (("repro.atlas",), {"flags": ("-OO",)}, ""),
    "warnings are errors": (CHECK, {"flags": ("-W", "error")}, SAME),
    "no standard output": (LIST, {"run": 'exec "$@" >&-'}, TOLD),
    "no standard error": (LIST, {"run": 'exec "$@" 2>&-'}, TOLD),
    "no standard input": (CHECK, {"run": 'exec "$@" <&-'}, SAME),
    "a full disk behind standard output": (LIST, {"run": 'exec "$@" >/dev/full'}, ""),
    "a full disk behind a long output": (ATLAS, {"run": 'exec "$@" >/dev/full'}, ""),
    "seven open files at most": (CHECK, {"limit": {resource.RLIMIT_NOFILE: 7}}, SAME),
    "files of 4 kB at most": (
        ("repro.pipeline", "manifest"),
        {"limit": {resource.RLIMIT_FSIZE: 4096}},
        "",
    ),
    "700 MB of addresses": (CHECK, {"limit": {resource.RLIMIT_AS: 700 << 20}}, SAME),
    "an arm of bytes that are no text": (("repro.verl", "--arm", b"\xff\xfe"), {}, ""),
    "a stage of bytes that are no text": (("repro.pipeline", "run", b"train@\xff"), {}, ""),
    "a sampler of bytes that are no text": (("repro.tour", b"\xff.py"), {}, ""),
    "data of bytes that are no text": ((*OWN, b"\xff.jsonl", "--model", "model"), {}, ""),
    "an option of bytes that are no text": (("repro.atlas", "run", b"--\xff"), {}, ""),
    "a sampler with a mark of UTF-8": (TOUR, {"put": {"mine.py": holds(b"\xef\xbb\xbfx = 1\n")}}, ""),
    "a sampler in a coding that is none": (TOUR, {"put": {"mine.py": holds(b"# coding: nonsense\n" + SAMPLER)}}, ""),
    "a sampler with a zero byte": (TOUR, {"put": {"mine.py": holds(SAMPLER + b"\0")}}, ""),
    "a sampler that is bytecode": (TOUR, {"put": {"mine.py": holds(b"\xa7\r\r\n" + bytes(64))}}, ""),
    "a sampler of 3,000 brackets": (TOUR, {"put": {"mine.py": holds(b"x = " + b"(" * 3000 + b")" * 3000)}}, ""),
    "a sampler that imports itself": (TOUR, {"put": {"mine.py": holds(b"import mine\n")}}, ""),
}
