"""A search in virtual time through another tool: four workers that only pretend to train.

It needs the standard library only. A script ``use_NAME_search.py`` hands :func:`main` a function that makes a
:class:`Searcher`; everything else is the same for all.
"""

import heapq
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Protocol

from benchmarks.search_problems import EPOCHS, Params, Problem, Record, problem

WORKERS = 4


class Searcher(Protocol):
    """A tool's search of one problem."""

    def start(self) -> tuple[Any, Params]:
        """A new trial in the tool's own shape, and its params."""

    def report(self, trial: Any, epoch: int, value: float) -> bool:
        """Whether the trial may go on after an epoch that is not the last."""

    def finish(self, trial: Any, value: float) -> None:
        """The trial reported after its last epoch."""


def main(package: str, make: Callable[[str, Problem, int], Searcher]) -> None:
    """Search as ``sys.argv[1]`` describes as JSON and print what each seed brought as the last line."""
    options = json.loads(sys.argv[1])
    searched = problem(options["problem"], Path(options["table"]))
    with redirect_stdout(sys.stderr):  # some tools talk
        began = time.perf_counter()
        runs = [
            search(make(options["strategy"], searched, seed), searched, seed, options)
            for seed in range(options["seeds"])
        ]
        result = {
            "version": importlib.metadata.version(package),
            "seconds": time.perf_counter() - began,
            "runs": runs,
        }
    print(json.dumps(result), flush=True)


def search(searcher: Searcher, searched: Problem, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Run one search.

    Args:
        options: ``budget`` in epochs; ``rungs``, the epochs at which trials may be stopped; ``trials`` to
            start at most (None: no limit).
    """
    record = Record(searched)
    rungs = set(options["rungs"])
    # (moment, number, epochs done by then, the tool's trial, its params)
    agenda: list[tuple[float, int, int, Any, Params]] = []
    started = 0

    def start(now: float) -> None:
        nonlocal started
        if options["trials"] is None or started < options["trials"]:
            trial, params = searcher.start()
            heapq.heappush(agenda, (now + searched.seconds(params), started, 1, trial, params))
            started += 1

    for _ in range(WORKERS):
        start(0.0)
    while agenda and record.spent < options["budget"]:
        now, number, epoch, trial, params = heapq.heappop(agenda)
        value = searched.value(params, epoch, seed)
        goes_on = epoch < EPOCHS and searcher.report(trial, epoch, value)
        if epoch in rungs or not goes_on:
            record.add(number, params, epoch, value)
        if goes_on:
            heapq.heappush(agenda, (now + searched.seconds(params), number, epoch + 1, trial, params))
            continue
        if epoch == EPOCHS:
            searcher.finish(trial, value)
        start(now)
    return record.result()
