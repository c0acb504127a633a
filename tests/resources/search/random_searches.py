"""Searches of any spec, by workers of any kind, for properties that hold for all of them."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from resources.search.decide import Decision, Event, decide
from resources.search.simulation import SimulatedWorkers, Simulation, simulate
from resources.search.state import Result, SearchState, TrialState
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import SMALL

Step = tuple[tuple[TrialState, ...], Event, Decision]


@dataclass
class Search:
    """A simulated search: how it ended, and each event with the trials before it and the decision on it."""

    spec: SweepSpec
    end: Simulation
    steps: list[Step] = field(default_factory=list)


def run_search(
    spec: SweepSpec, workers: SimulatedWorkers, seed: int, watch: Callable[..., None] | None = None
) -> Search:
    noise = random.Random(seed)
    values: dict[tuple[int, int], Result] = {}

    def evaluate(trial: int, params: dict[str, Any], epochs: int) -> Result:
        if (trial, epochs) not in values:  # few different ones, so that there are ties
            value = round(params["x"] + noise.gauss(0, 0.3), 1)
            values[trial, epochs] = Result((value,), max(0.0, noise.uniform(-4, 1)) if spec.bounds else 0.0)
        return values[trial, epochs]

    steps: list[Step] = []

    def note(state: SearchState, event: Event) -> tuple[Decision, TrialState | None]:
        decision, trial = decide(state, event)
        steps.append((tuple(state.trials), event, decision))
        if watch:
            watch(state, event, decision)
        return decision, trial

    with mock.patch("resources.search.simulation.decide", note):
        return Search(spec, simulate(spec, evaluate, workers, seed=seed), steps)


@st.composite
def specs(
    draw: st.DrawFn,
    kinds: tuple[str, ...] = ("random", "asha", "hyperband", "median"),
    audits: tuple[float, ...] = (0.0, 0.4),
) -> SweepSpec:
    kind = draw(st.sampled_from(kinds))
    factor = draw(st.integers(2, 4))
    rungs = draw(st.integers(2, 4))
    settings_of: dict[str, Any] = {
        "sampler": "random",
        "max_budget": factor ** (rungs - 1),
        "audit": draw(st.sampled_from(audits)),
    }
    strategies: dict[str, dict[str, Any]] = {
        "random": {"budget": 4},
        "asha": {**settings_of, "reduction_factor": factor},
        "hyperband": {**settings_of, "reduction_factor": factor},
        "median": {
            **settings_of,
            "max_budget": rungs,
            "min_trials": 3,
            "quantile": draw(st.sampled_from([0.25, 0.5, 0.8])),
        },
    }
    changes = {
        "objective": {"metric": "score", "direction": draw(st.sampled_from(["maximize", "minimize"]))},
        "strategy": {kind: strategies[kind]},
        "max_trials": draw(st.integers(1, 40)),
        "max_retries": draw(st.integers(0, 2)),
        "max_preemptions": draw(st.integers(0, 3)),
        "bounds": draw(st.sampled_from([{}, {"latency": {"max": 1.0}}])),
        "seed": draw(st.integers(0, 99)),
    }
    return parse_spec({**SMALL, **changes})


@st.composite
def crews(draw: st.DrawFn) -> SimulatedWorkers:
    return SimulatedWorkers(
        count=draw(st.integers(1, 8)),
        speeds=draw(st.sampled_from([(1.0, 1.0), (0.3, 3.0)])),
        mean_life=draw(st.sampled_from([None, 3.0, 10.0])),
        replaced_after=draw(st.sampled_from([0.5, 20.0])),
        lease=draw(st.sampled_from([0.1, 5.0])),
        crash=draw(st.sampled_from([0.0, 0.1, 0.5])),
        fail=draw(st.sampled_from([0.0, 0.1, 0.5])),
        early=draw(st.sampled_from([0.0, 0.2])),
    )


seeds = st.integers(0, 10_000)
