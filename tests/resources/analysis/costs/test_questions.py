"""What is asked of the ledger: costs add up whatever they are told apart by, and what was saved is what the
leaderboard says.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

import halving
from halving.errors import NotFound
from halving.store.store import blob_name
from resources.analysis.costs.prices import load_prices
from resources.analysis.costs.questions import costs, sweep_cost, sweep_lines
from resources.analysis.costs.storage import SAMPLED, stored_of
from resources.analysis.costs.sums import (
    AUDIT,
    BY,
    FAILED,
    FINAL,
    PRUNED,
    WINNER,
    Held,
    largest,
    lines_by,
    money,
    saved_cost,
    total,
)
from resources.analysis.summary import summarize
from resources.backend import Backend
from resources.catalog import AttemptRow, ReportRow, utcnow
from resources.sweep_spec import SweepSpec
from resources.tenancy.gpu_hours import gpu_hours_used
from resources.tenancy.projects import rename_project, set_project
from tests.backends import add_version
from tests.searches import search

Spec = Callable[..., SweepSpec]
PRICES = load_prices()
HOUR = 3600.0
GPU_HOUR = PRICES.gpu_hour["default"].price


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float] | None:
    return None if trial == 3 else {"score": (1 - (params["x"] - 0.5) ** 2) * (1 - 0.5**epochs)}


def held(**changes: Any) -> Held:
    fields: dict[str, Any] = {"sweep": "a-1", "project": "p", "model": "m", "trial": "a-1.0000", "attempt": 1}
    fields |= {"purpose": WINNER, "outcome": "complete"}
    fields |= {
        "seconds": HOUR,
        "with_result": HOUR,
        "nodes": 1,
        "gpus": 0,
        "cpus": 2.0,
        "gpu_type": None,
        "spot": False,
    }
    fields |= changes
    return Held(**{"months": {"2026-11": fields["seconds"]}, **fields})


def test_a_hundred_seconds_of_a_gang_cost_those_of_all_its_gpus() -> None:
    gang = held(seconds=900.0, nodes=3, gpus=4)
    assert gang.cost(PRICES) == 0.25 * 12 * PRICES.gpu_hour["default"].price
    assert gang.gpu_hours == 3.0


def test_a_crash_loses_the_time_since_its_last_result_and_completion_nothing() -> None:
    crashed = held(outcome="retry", with_result=600.0)
    complete = held(with_result=600.0)
    line = total([crashed, complete], PRICES)
    assert line.lost == crashed.cost(PRICES, 3000.0)
    assert line.lost == total([held(outcome="preempted", with_result=600.0)], PRICES).lost


def test_whatever_costs_are_told_apart_by_they_add_up() -> None:
    attempts = [
        held(sweep=f"s-{place % 3}", outcome=("complete", "retry", None)[place % 3], gpus=place % 2)
        for place in range(12)
    ]
    for by in BY:
        lines = lines_by(by, attempts, PRICES)
        assert sum(line.cost for line in lines) == pytest.approx(total(attempts, PRICES).cost)
        assert sum(line.attempts for line in largest(lines, 1)) == 12
    assert [
        line.name for line in lines_by("month", [held(), held(months={"2025-12": HOUR}, gpus=8)], PRICES)
    ] == [
        "2025-12",
        "2026-11",
    ]


def test_what_was_held_in_several_months_is_in_the_line_of_each_and_adds_up() -> None:
    attempts = [
        held(months={"2026-10": 2 * HOUR, "2026-11": HOUR}, seconds=3 * HOUR, with_result=2.5 * HOUR, gpus=2),
        held(
            months={"2026-10": 2 * HOUR, "2026-11": HOUR},
            seconds=3 * HOUR,
            with_result=HOUR,
            gpus=2,
            outcome="retry",
        ),
    ]
    whole = total(attempts, PRICES)
    lines = lines_by("month", attempts, PRICES)
    assert [(line.name, line.gpu_hours, line.attempts) for line in lines] == [
        ("2026-10", 8.0, 0),
        ("2026-11", 4.0, 2),
    ]
    assert [line.lost for line in lines] == [2 * GPU_HOUR, 2 * GPU_HOUR], (
        "what came after the last result was lost"
    )
    for column in ("cost", "gpu_hours", "seconds", "attempts", "lost"):
        assert sum(getattr(line, column) for line in lines) == pytest.approx(getattr(whole, column))


def test_what_was_saved_counts_with_what_the_trial_held_at_its_last_result() -> None:
    attempts = [held(gpus=1), held(gpus=4, attempt=2), held(gpus=8, attempt=3), held(trial="a-1.0001")]
    saved = [("a-1.0000", 2, HOUR), ("a-1.0001", 1, HOUR), ("a-1.0009", 1, HOUR)]
    assert saved_cost(attempts, saved, PRICES) == pytest.approx(8.0 + 0.1)


def test_small_amounts_keep_digits_that_say_something() -> None:
    assert [money(value, PRICES) for value in (0.0, 0.0000123, 0.00123, 1234.5)] == [
        "0.00 USD",
        "0.000012 USD",
        "0.0012 USD",
        "1,234.50 USD",
    ]


def test_a_sweeps_purposes_add_up_and_its_saving_is_the_leaderboards(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(
        max_trials=12,
        resources={"gpus": 2},
        strategy={"asha": {"sampler": "random", "max_budget": 9, "audit": 0.3}},
    )
    sweep = search(backend, spec, score, seconds=100.0)
    cost = sweep_cost(backend.catalog, sweep, PRICES)
    summary = summarize(backend.catalog, sweep)
    purposes = {line.name: line for line in cost.purposes}
    assert {WINNER, PRUNED, FAILED, AUDIT} <= set(purposes)
    assert sum(line.cost for line in cost.purposes) == pytest.approx(cost.cost)
    assert cost.saved == pytest.approx(summary.gpu_seconds_saved / HOUR * 2.0)
    assert cost.trained.gpu_hours * HOUR == pytest.approx(summary.gpu_seconds + 2 * summary.audit_seconds)
    assert purposes[FAILED].lost == cost.trained.lost > 0
    assert cost.as_dict()["text"].startswith(money(cost.cost, PRICES))


def test_a_champion_costs_its_whole_search_its_final_training_and_its_evaluation(
    backend: Backend, small_spec: Spec
) -> None:
    sweep = search(
        backend,
        small_spec(max_trials=4, final={"on": ["train"], "seeds": 2, "epochs": 2}),
        score,
        seconds=360.0,
    )
    with backend.catalog.write() as session:
        session.add(
            ReportRow(
                sweep=sweep,
                digest="sha256:r",
                html="sha256:h",
                metrics={},
                created_at=utcnow(),
                cpu_seconds=2 * HOUR,
            )
        )
        add_version(session, model="small", version="v1", stage="champion", sweep=sweep, trial=0)
    cost = costs(backend.store, backend.catalog, "small", "sweep", PRICES)
    assert cost.champion is not None
    assert (cost.champion_version, cost.champion.sweep) == ("v1", sweep)
    assert FINAL in {line.name for line in cost.champion.purposes}
    assert cost.champion.evaluation == pytest.approx(2 * PRICES.cpu_hour.price)
    assert cost.champion.cost == pytest.approx(cost.trained.cost + cost.evaluation)
    everything = costs(backend.store, backend.catalog, None, "project", PRICES)
    assert [(line.name, line.cost) for line in everything.lines] == [
        ("small", pytest.approx(cost.trained.cost))
    ]
    assert sum(line.cost for line in sweep_lines(backend.catalog, sweep, "outcome", PRICES)) == pytest.approx(
        cost.trained.cost
    )


def test_a_running_attempt_costs_what_it_has_held_so_far(backend: Backend, small_spec: Spec) -> None:
    sweep = search(backend, small_spec(max_trials=2), score, limit=0)
    with backend.catalog.write() as session:
        (row,) = session.scalars(select(AttemptRow).where(AttemptRow.outcome.is_(None)))
        row.held_since = utcnow().replace(year=2020)
    cost = sweep_cost(backend.catalog, sweep, PRICES)
    assert cost.trained.seconds > 365 * 24 * HOUR


def test_an_attempt_over_a_months_end_is_in_each_month_what_it_is_of_its_quota(
    backend: Backend, small_spec: Spec
) -> None:
    search(backend, small_spec(max_trials=2, resources={"gpus": 1}), score)
    ended = datetime(2026, 11, 1, 6, tzinfo=UTC)
    with backend.catalog.write() as session:
        rows = session.scalars(select(AttemptRow).order_by(AttemptRow.trial, AttemptRow.attempt)).all()
        for row in rows:
            row.held_since = ended
            row.ended_at = ended + timedelta(hours=1)
            row.seconds = HOUR
        rows[0].held_since = ended - timedelta(hours=30)
        rows[0].ended_at = ended
        rows[0].seconds = 24 * HOUR  # its worker told fewer than there are between the two moments
    cost = costs(backend.store, backend.catalog, "small", "month", PRICES)
    hours = {line.name: line.gpu_hours for line in cost.lines}
    assert hours == {
        "2026-10": pytest.approx(24 * 24 / 30),
        "2026-11": pytest.approx(24 * 6 / 30 + len(rows) - 1),
    }
    assert sum(hours.values()) == pytest.approx(cost.trained.gpu_hours)
    assert sum(line.attempts for line in cost.lines) == cost.trained.attempts
    with backend.catalog.read() as session:
        for month in hours:
            within = datetime.fromisoformat(f"{month}-20T00:00:00+00:00").timestamp()
            assert gpu_hours_used(session, ["small"], within) == pytest.approx(hours[month])


def test_a_renamed_project_costs_what_it_did_under_either_name(backend: Backend, small_spec: Spec) -> None:
    search(backend, small_spec(max_trials=2, project="old", resources={"gpus": 1}), score, seconds=HOUR)
    before = costs(backend.store, backend.catalog, "old", "project", PRICES)
    rename_project(backend.catalog, "old", "new")
    set_project(backend.catalog, "new", gpu_hours=100.0)
    for name in ("old", "new"):
        cost = costs(backend.store, backend.catalog, name, "project", PRICES)
        assert [(line.name, line.cost) for line in cost.lines] == [("new", before.trained.cost)]
        assert cost.hours is not None
        assert (cost.hours.project, cost.hours.quota) == ("new", 100.0)
        assert cost.as_dict()["gpu_hours_this_month"]["left"] == cost.hours.left


def test_an_unknown_name_is_refused_with_those_that_are_close_or_all(
    backend: Backend, small_spec: Spec
) -> None:
    sweep = search(backend, small_spec(max_trials=1, project="vision"), score)
    with backend.catalog.write() as session:
        add_version(session, model="eyes", version="v1", stage="staging")
    for name, said in (
        ("smal", "close to it: small"),
        (f"{sweep}.0000", f"close to it: {sweep}"),
        ("nothing", f"there are 4 sweeps, models and projects: eyes, small, {sweep}, vision"),
    ):
        with pytest.raises(NotFound, match=f"no sweep, model or project '{name}'; {said}"):
            costs(backend.store, backend.catalog, name, "sweep", PRICES)


def test_storage_is_exact_for_few_runs_and_an_estimate_for_many(backend: Backend) -> None:
    blob = backend.store.put_blob(b"x" * 1000)
    for number in range(3):
        with halving.init(project="p", id=f"r{number}", root=backend.store.root, system_metrics=None) as run:
            run.log({"loss": 1.0}, step=1)
        run.records.add_artifact("model", blob, 1000)
        run.records.add_artifact("the same model", blob, 1000)
        backend.store.create(
            f"{run.records.folder}/media/0001-0000000000.json",
            json.dumps({"digest": blob, "bytes": 1000}).encode(),
        )
    few = stored_of(backend.store, "p", PRICES)
    assert (few.runs, few.sampled, few.artifacts, few.checkpoints, few.estimated) == (3, 3, 3000, 0, False)
    assert few.points == sum(size for _, size, _ in backend.store.files("metrics/project=p")) > 0
    record = json.dumps({"digest": blob, "bytes": 1000}).encode()
    for number in range(3, 2 * SAMPLED):
        backend.store.create(f"runs/project=p/r{number}/record.json", b"{}")
        backend.store.create(f"runs/project=p/r{number}/artifacts/model.json", record)
    many = stored_of(backend.store, "p", PRICES)
    assert (many.runs, many.sampled, many.artifacts, many.estimated) == (
        2 * SAMPLED,
        SAMPLED,
        2 * SAMPLED * 1000,
        True,
    )
    assert many.month == pytest.approx(many.bytes / 1e9 * PRICES.gb_month.price)
    assert stored_of(backend.store, "nothing", PRICES).bytes == 0


def test_storage_is_what_the_store_has_and_not_what_retention_has_deleted(backend: Backend) -> None:
    with halving.init(project="p", id="r", root=backend.store.root, system_metrics=None) as run:
        run.save(weights=[0.5] * 1000)
    saved = run.records.latest_checkpoint()
    assert saved is not None
    weights = backend.store.sizes([blob_name(saved.digest)])[blob_name(saved.digest)]
    gone = backend.store.put_blob(b"x" * 1000)
    stays = backend.store.put_blob(b"y" * 10)
    for name, digest in (("gone", gone), ("stays", stays), ("weights", saved.digest)):
        run.records.add_artifact(name, digest, 0)
    before = stored_of(backend.store, "p", PRICES)
    assert (before.checkpoints, before.artifacts) == (weights, 1010), (
        "a checkpoint that is logged as an artifact, too, is one blob"
    )
    backend.store.delete(blob_name(gone))
    assert stored_of(backend.store, "p", PRICES).artifacts == 10
