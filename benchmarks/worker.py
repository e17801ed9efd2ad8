"""Answers requests, one line of JSON each, with wall and CPU seconds and whatever the request measured."""

import json
import os
import sys
import time
from collections.abc import Callable


class Requests:
    """Standard input and output as a conversation; what libraries print goes to standard error instead."""

    def __init__(self):
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def next(self) -> dict:
        """The next request; its time starts now. Ends the process when there is none."""
        if not (line := sys.stdin.readline()):
            sys.exit()
        self._started = time.perf_counter(), time.process_time()
        return json.loads(line)

    def answer(self, **measured: object) -> None:
        """The request is done."""
        wall, cpu = (
            now - then for now, then in zip((time.perf_counter(), time.process_time()), self._started, strict=True)
        )
        print(json.dumps({"seconds": wall, "cpu_seconds": cpu, **measured}), file=self._answers)

    def serve(self, actions: dict[str, Callable[..., dict]]) -> None:
        """Do what each request names, `{"do": name, argument: value}`, until there are no more."""
        while True:
            request = self.next()
            self.answer(**actions[request.pop("do")](**request))
