"""Searches in Halving's own simulator, which has the decisions and the suggester of a real sweep."""

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.search_loop import WORKERS
from benchmarks.search_problems import EPOCHS, Params, Problem, Real, Record, Whole, problem

_EARLY = {"min_budget": 1, "max_budget": EPOCHS}
_RUNGS = {**_EARLY, "reduction_factor": 3}
STRATEGIES: dict[str, dict[str, Any]] = {
    "random": {"random": {"budget": EPOCHS}},
    "tpe": {"tpe": {"budget": EPOCHS}},
    "gp": {"gp": {"budget": EPOCHS}},
    "asha, random": {"asha": {"sampler": "random", **_RUNGS}},
    "asha, tpe": {"asha": {"sampler": "tpe", **_RUNGS}},
    "hyperband, random": {"hyperband": {"sampler": "random", **_RUNGS}},
    "bohb": {"bohb": _RUNGS},
    "median, random": {"median": {"sampler": "random", **_EARLY}},
    "median, tpe": {"median": {"sampler": "tpe", **_EARLY}},
}


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Search with one strategy and every seed, in a process of its own.

    The result is what :mod:`benchmarks.peers.search_loop` prints.
    """
    import importlib.metadata

    os.environ["OMP_NUM_THREADS"] = "1"  # one process a core
    searched = problem(arguments["problem"], Path(arguments["table"]))
    began = time.perf_counter()
    runs = [_search(searched, seed, arguments) for seed in range(arguments["seeds"])]
    return {
        "version": importlib.metadata.version("halving-platform"),
        "seconds": time.perf_counter() - began,
        "runs": runs,
    }


def _search(searched: Problem, seed: int, arguments: dict[str, Any]) -> dict[str, Any]:
    from resources.search.simulation import SimulatedWorkers, simulate
    from resources.search.state import Result
    from resources.sweep_spec import parse_spec

    record = Record(searched)

    def evaluate(trial: int, params: Params, epochs: int) -> Result:
        value = searched.value(params, epochs, seed)
        record.add(trial, params, epochs, value)
        return Result((value,))

    spec = parse_spec(
        _spec(searched, arguments["strategy"], seed, arguments["trials"] or arguments["budget"])
    )
    simulate(
        spec,
        evaluate,
        SimulatedWorkers(WORKERS),
        seed=seed,
        epoch_seconds=searched.seconds,
        max_epochs=arguments["budget"],
    )
    return record.result()


def _spec(searched: Problem, strategy: str, seed: int, trials: int) -> dict[str, Any]:
    return {
        "name": "bench",
        "trainable": "examples.digits:train",
        "predictor": "examples.digits:predict",
        "dataset": {"name": "digits", "source": "examples.digits:load", "target": "label"},
        "objective": {"metric": "value", "direction": "minimize"},
        "space": {name: _parameter(axis) for name, axis in searched.space.items()},
        "strategy": STRATEGIES[strategy],
        "max_trials": trials,
        "seed": seed,
    }


def _parameter(axis: Any) -> dict[str, Any]:
    if isinstance(axis, Real):
        return {"float": {"low": axis.low, "high": axis.high}}
    if isinstance(axis, Whole):
        return {"int": {"low": axis.low, "high": axis.high}}
    return {"categorical": list(axis.choices)}
