"""Ten thousand trials on a thousand workers that come and go, in virtual time."""

import random
import time
from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, spread

WORKERS = 1024
TRIALS = 10_000
LIFE = 7_858.0  # virtual seconds until a worker is lost, on average: of all, 60 % are lost within two hours
EPOCH_SECONDS = 120.0
STRATEGIES: dict[str, dict[str, Any]] = {
    "asha, random": {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 27}},
    "hyperband, random": {"hyperband": {"sampler": "random", "min_budget": 1, "max_budget": 27}},
    "median, random": {"median": {"sampler": "random", "min_budget": 3, "max_budget": 27, "interval": 3}},
}
_TEXT = f"""
{TRIALS:,} trials of up to 27 epochs of {EPOCH_SECONDS:.0f} virtual seconds on {WORKERS:,} workers of 0.5 to 2
times the usual speed. One is lost after {LIFE:,.0f} s on average (exponential), without a word: so 60 % are
lost within two hours. Its trial is missed when the lease of 15 s runs out and goes on elsewhere from its last
checkpoint, of its last whole epoch; another worker comes after 120 s. One leg in a hundred ends in a crash
and is tried again. The simulator (`resources/search/simulation.py`) runs in one process on one core; the
whole process is timed. *Idle* is the time that workers wait while trials are still to be started, as a share
of all their time; *waiting at the end* is the same after the last start, when only promotions are left.
*Again* counts epochs trained once more, *twice* rungs trained to their end twice, *missing* results that a
trial ought to have and has not.
"""


def measure(setting: Setting) -> Part:
    """Measure the real time of each strategy's simulation, and what its workers did."""
    part = Part("scale", "Ten thousand trials on a thousand workers", _TEXT)
    header = [
        "strategy",
        "real, s",
        "virtual hours",
        "workers lost",
        "epochs",
        "epochs again",
        "idle",
        "waiting at the end",
        "twice",
        "missing",
    ]
    table = Table(header, [])
    for name in list(STRATEGIES)[: setting.choose(1, len(STRATEGIES))]:
        sizes = {
            "strategy": name,
            "trials": setting.choose(200, TRIALS),
            "workers": setting.choose(16, WORKERS),
        }
        results = [
            in_child("benchmarks.search_scale:run_simulation", **sizes, seed=seed)
            for seed in range(setting.choose(1, 3))
        ]
        values = {key: [result[key] for result in results] for key in results[0]}
        row = [
            name,
            *(spread(values[key]) for key in ("real_s", "hours", "lost_workers", "epochs", "repeated")),
        ]
        row += [
            *(spread([100 * share for share in values[key]]) + " %" for key in ("idle", "tail")),
            spread(values["twice"]),
            spread(values["missing"]),
        ]
        table.rows.append(row)
        if not part.targets:
            part.targets = [
                Target(
                    f"{TRIALS:,} simulated trials on {WORKERS:,} workers, one core",
                    "s",
                    values["real_s"],
                    120.0,
                ),
                Target(
                    "workers' idle time while trials are still to be started",
                    "%",
                    [100 * share for share in values["idle"]],
                    1.0,
                ),
                Target(
                    "rungs trained twice, and results missing",
                    "",
                    [a + b for a, b in zip(values["twice"], values["missing"], strict=True)],
                    0.0,
                ),
            ]
    part.tables.append(table)
    return part


def run_simulation(strategy: str, trials: int, workers: int, seed: int) -> dict[str, Any]:
    """Simulate one search, in a process of its own."""
    began = time.perf_counter()
    from resources.search.simulation import SimulatedWorkers, simulate
    from resources.search.state import Result, Status
    from resources.sweep_spec import parse_spec

    def evaluate(trial: int, params: dict[str, Any], epochs: int) -> Result:
        return Result((params["x"] + 1 / epochs + random.Random(trial * 100 + epochs).gauss(0.0, 0.05),))

    spec = parse_spec(spec_of(STRATEGIES[strategy], max_trials=trials, seed=seed, max_retries=3))
    simulated = SimulatedWorkers(workers, speeds=(0.5, 2.0), mean_life=LIFE, crash=0.01)
    outcome = simulate(spec, evaluate, simulated, seed=seed, epoch_seconds=lambda params: EPOCH_SECONDS)
    seconds = time.perf_counter() - began
    state = outcome.state
    reached = {
        (trial.number, rung)
        for trial in state.trials
        for rung, result in enumerate(trial.results)
        if result is not None
    }
    unfinished = sum(
        trial.status in (Status.RUNNING, Status.QUEUED, Status.SUGGESTED) for trial in state.trials
    )
    all_time = outcome.busy_seconds + outcome.idle_seconds + outcome.tail_seconds
    return {
        "real_s": seconds,
        "hours": outcome.seconds / 3600,
        "lost_workers": outcome.lost_workers,
        "epochs": outcome.epochs,
        "repeated": outcome.repeated_epochs,
        "idle": outcome.idle_seconds / all_time,
        "tail": outcome.tail_seconds / all_time,
        "twice": sum(count - 1 for count in outcome.rungs.values()),
        "missing": len(reached ^ set(outcome.rungs)) + unfinished + (trials - len(state.trials)),
    }


def spec_of(strategy: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A sweep over one float, as plain data."""
    return {
        "name": "bench",
        "trainable": "benchmarks.search_noop:train",
        "predictor": "benchmarks.search_noop:predict",
        "dataset": {"name": "points", "source": "benchmarks.search_noop:data", "target": "label"},
        "objective": {"metric": "score", "direction": "minimize"},
        "space": {"x": {"float": {"low": 0.0, "high": 1.0}}},
        "strategy": strategy,
        **changes,
    }
