"""Processes that play a sweep as the test orders, and the sweeps that they play."""

import multiprocessing
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resources.catalog import Catalog
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import SMALL, snapshot_row
from tests.resources.scheduling.killed_processes import opened_catalog, serve

STRATEGIES: dict[str, dict[str, Any]] = {
    "asha": {"asha": {"sampler": "random", "max_budget": 4, "reduction_factor": 2}},
    "tpe": {
        "asha": {"sampler": "tpe", "options": {"n_startup_trials": 3}, "max_budget": 4, "reduction_factor": 2}
    },
    "hyperband": {"hyperband": {"sampler": "random", "max_budget": 4, "reduction_factor": 2}},
    "median": {"median": {"sampler": "random", "max_budget": 3, "min_trials": 2}},
    "audit": {"asha": {"sampler": "random", "max_budget": 4, "reduction_factor": 2, "audit": 0.5}},
}


def spec_of(strategy: str, **changes: Any) -> SweepSpec:
    """Seven trials, whose workers may be lost as often as they like."""
    fields = {"strategy": STRATEGIES[strategy], "max_trials": 7, "max_preemptions": 1000, "seed": 4}
    return parse_spec({**SMALL, **fields, **changes})


def open_new(catalog: Catalog, spec: SweepSpec) -> str:
    """A new sweep, whatever others of its spec there are."""
    return open_sweep(catalog, spec, "sha256:s", driver=secrets.token_hex(8), commit=None).id


_processes = multiprocessing.get_context("forkserver")


class Player:
    """A process that plays a sweep; it is started when needed, and again after it was killed."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._process: Any = None

    def order(self, order: str, sweep: str, now: float, kill_at: int = 0) -> str | None:
        """Have an order carried out; its answer, or None when it was killed on the way."""
        self.send(order, sweep, now, kill_at)
        return self.answer()

    def send(self, order: str, sweep: str, now: float, kill_at: int = 0) -> None:
        if self._process is None:
            self._orders, other = _processes.Pipe()
            self._process = _processes.Process(
                target=serve, args=(other, self._url, self._folder), daemon=True
            )
            self._process.start()
            other.close()
        self._orders.send((order, sweep, now, kill_at))

    def answer(self) -> str | None:
        try:
            answer: str = self._orders.recv()
        except EOFError:
            self._process.join()
            assert self._process.exitcode == -signal.SIGKILL
            self._process = None
            return None
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


Players = Callable[[str], Player]


def catalog_at(url: str) -> Catalog:
    catalog = opened_catalog(url)
    with catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return catalog
