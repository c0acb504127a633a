"""What ``halving leaderboard`` and ``halving replay`` show, for people and as JSON."""

import io
import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from typing import Any

from rich.console import Console

from commands.leaderboard import print_leaderboard
from commands.replay import run_replay, strategy_text
from resources.backend import Backend
from resources.catalog import ReportRow
from resources.catalog.catalog import utcnow
from resources.registry.gates.verdict import FAIL, PASS, UNDECIDED, Verdict
from resources.registry.leaderboard import leaderboard_of
from resources.sweep_spec import SweepSpec
from tests.searches import search

Spec = Callable[..., SweepSpec]


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    return {"score": params["x"] * epochs, "latency_ms": 100 * params["x"]}


def replay_output(**arguments: Any) -> str:
    """What the command prints."""
    with redirect_stdout(io.StringIO()) as output:
        assert run_replay(Namespace(**arguments)) == 0
    return output.getvalue()


def test_a_replay_is_a_table_beside_the_sweep_itself_and_the_same_as_json(
    backend: Backend, small_spec: Spec
) -> None:
    sweep = search(backend, small_spec(max_trials=2), score, curves=True)
    arguments = {"root": backend.store.root, "sweep": sweep, "strategy": ["asha: {min_budget: 3}", "random"]}
    data = json.loads(replay_output(**arguments, json=True))
    assert [next(iter(entry["strategy"])) for entry in data["replayed"]] == ["asha", "random"]
    assert (
        data["replayed"][1]["epochs"]
        == 18
        == data["replayed"][1]["unknown_epochs"] + data["itself"]["epochs"]
    )
    text = replay_output(**arguments, json=False)
    for said in (
        f"{sweep}: 2 trials",
        "the sweep itself",
        "asha: {min_budget: 3, max_budget: 9}",
        "random: {budget: 9}",
        "unknown",
    ):
        assert said in text


def test_a_leaderboard_shows_what_exists_of_each_trial(backend: Backend, small_spec: Spec) -> None:
    space = {
        "kind": {"categorical": ["a", "b"]},
        "x": {"float": {"low": 0.0, "high": 1.0}},
        "y": {"float": {"low": 0.0, "high": 1.0}, "when": {"kind": "b"}},
    }
    strategy = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 9, "audit": 0.3}}
    sweep = search(
        backend,
        small_spec(space=space, bounds={"latency_ms": {"max": 50}}, strategy=strategy, max_trials=12),
        score,
    )
    output = io.StringIO()
    print_leaderboard(Console(width=200, file=output), backend, sweep, rows=20)
    text = output.getvalue()
    for said in (
        "latency_ms",
        "out of bounds",
        "audited",
        "Audit of pruning: ",
        "ranked by within bounds, then highest rung",
        " -\n",
    ):
        assert said in text


def test_a_leaderboard_says_which_gates_were_passed_and_of_the_others_why_not(
    backend: Backend, small_spec: Spec
) -> None:
    verdicts = [
        Verdict("finite_metrics", PASS, "accuracy is finite"),
        Verdict("bounds", PASS, "accuracy 0.9 is at least 0.5"),
        Verdict("bounds", FAIL, "f1_macro 0.4 is below 0.5"),
        Verdict("non_inferior", UNDECIDED, "about 1,200 rows would settle it", needed=1200),
    ]
    sweep = search(backend, small_spec(max_trials=2), score)
    report = backend.store.put_blob(
        json.dumps({"gates": [verdict.as_dict() for verdict in verdicts]}).encode()
    )
    with backend.catalog.write() as session:
        session.add(
            ReportRow(sweep=sweep, digest=report, html=report, metrics={"accuracy": 0.9}, created_at=utcnow())
        )
    output = io.StringIO()
    print_leaderboard(Console(width=200, file=output), backend, sweep)
    for said in (
        "Gates passed: finite_metrics, bounds\n",
        "Gate bounds: fail: f1_macro 0.4 is below 0.5\n",
        "Gate non_inferior: too little evidence: about 1,200 rows would settle it\n",
    ):
        assert said in output.getvalue()
    assert leaderboard_of(backend.store, backend.catalog, sweep)["gates"] == [
        verdict.as_dict() for verdict in verdicts
    ]


def test_a_strategy_is_shown_by_its_budgets_and_what_differs_from_the_defaults() -> None:
    assert strategy_text({"random": {"budget": 27}}) == "random: {budget: 27}"
    settings = {
        "sampler": "tpe",
        "options": {},
        "min_budget": 1,
        "max_budget": 9,
        "reduction_factor": 4,
        "audit": 0.0,
    }
    assert strategy_text({"asha": settings}) == "asha: {min_budget: 1, max_budget: 9, reduction_factor: 4}"
    assert (
        strategy_text({"optuna": {"sampler": "optuna.samplers:CmaEsSampler", "options": {}, "budget": 9}})
        == "optuna: {budget: 9}"
    )
