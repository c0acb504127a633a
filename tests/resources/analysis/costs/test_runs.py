"""What runs cost that are no trials: those of scripts, and reruns.

By their records, through the index, and never twice.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, select

import halving
from halving.errors import NotFound
from halving.maintenance.compaction import compact
from halving.metrics.segments import encode, live_folder, points_table, segment_name
from halving.records.run_record import RunRecords
from halving.store.store import Store
from resources.analysis.costs.prices import Prices, load_prices
from resources.analysis.costs.questions import Costs, costs
from resources.analysis.costs.sums import BY, RERUNS, SCRIPTS, By
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.catalog import RunAttemptRow
from resources.sweep_spec import SweepSpec
from resources.tenancy.projects import rename_project, set_project
from tests.backends import add_version
from tests.searches import search

BEGAN = datetime(2026, 3, 10, 10, tzinfo=UTC)
H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-40GB"
PRICES = load_prices()
GPU_HOUR = PRICES.gpu_hour["default"].price
CPU_HOUR = PRICES.cpu_hour.price


def hardware(gpus: int = 0, visible: str | None = None, kind: str = H100) -> dict[str, Any]:
    listed = [f"{kind}, GPU-{place}, 550.54" for place in range(gpus)]
    return {
        "cpus": 4,
        "gpus": listed,
        "visible_gpus": {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible},
    }


def begin(
    store: Store,
    run: str,
    machine: Mapping[str, Any],
    *,
    project: str = "vision",
    parent: Mapping[str, Any] | None = None,
    after: float = 0.0,
    **recorded: Any,
) -> int:
    """Begin an attempt ``after`` hours; its number."""
    began = {
        "started": (BEGAN + timedelta(hours=after)).isoformat(),
        "provenance": {"hardware": dict(machine)},
        **recorded,
    }
    return RunRecords(store, project, run).start({}, parent or {}, None, began)


def end(
    store: Store,
    run: str,
    hours: float,
    *,
    project: str = "vision",
    attempt: int = 1,
    status: str = "finished",
) -> None:
    ended = (BEGAN + timedelta(hours=hours)).isoformat()
    RunRecords(store, project, run).end(attempt, {"status": status, "time": ended})


def log_point(store: Store, run: str, hours: float, attempt: int = 1) -> None:
    """What a process has logged that was killed afterwards."""
    time_ms = round((BEGAN + timedelta(hours=hours)).timestamp() * 1000)
    table = points_table(run, attempt, ["loss"], *([0], [1], [time_ms], [0.5]))
    store.create(f"{live_folder('vision', run)}/{segment_name(attempt, 0)}", encode(table))


def write_long_ago(store: Store) -> None:
    """Let all metric files be old: who has written one just now counts as running."""
    assert store.folder is not None
    for file in (store.folder / "metrics").rglob("*.*"):
        os.utime(file, (BEGAN.timestamp(),) * 2)


def ran(backend: Backend, run: str, machine: Mapping[str, Any], hours: float, **options: Any) -> None:
    begin(backend.store, run, machine, **options)
    end(backend.store, run, hours, project=options.get("project", "vision"))


def cost_of(
    backend: Backend, of: str | None = "vision", by: By = "purpose", prices: Prices = PRICES
) -> Costs:
    Refresher(backend.store, backend.catalog).refresh()
    return costs(backend.store, backend.catalog, of, by, prices)


def lines(cost: Costs) -> dict[str, float]:
    return {line.name: line.cost for line in cost.lines}


def test_a_scripts_run_costs_the_gpus_that_it_could_see_for_as_long_as_it_ran(
    either_backend: Backend,
) -> None:
    ran(either_backend, "all", hardware(8), 2.0)
    ran(either_backend, "some", hardware(8, visible="2,3"), 1.0)
    ran(either_backend, "none", hardware(8, visible=""), 3.0)
    ran(either_backend, "again", hardware(1), 1.5, parent={"rerun_of": "vision/all"})
    cost = cost_of(either_backend)
    assert lines(cost) == {
        SCRIPTS: pytest.approx((16 + 2) * GPU_HOUR + 12 * CPU_HOUR),
        RERUNS: pytest.approx(1.5 * GPU_HOUR),
    }
    assert (cost.runs.attempts, cost.runs.gpu_hours, cost.estimated) == (4, pytest.approx(19.5), 0.0)
    assert cost.runs.cost == cost.trained.cost
    assert lines(cost_of(either_backend, None, "project")) == {"vision": pytest.approx(cost.trained.cost)}


def test_a_run_of_several_ranks_costs_all_of_its_machines_and_what_each_rank_saw(
    either_backend: Backend,
) -> None:
    ran(either_backend, "torchrun", hardware(8), 1.0, ranks={"size": 16, "nodes": 2, "visible_gpus": [None]})
    ran(
        either_backend,
        "slurm",
        hardware(8, visible="0"),
        1.0,
        ranks={"size": 4, "nodes": 1, "visible_gpus": ["0", "1", "2", "3"]},
    )
    assert cost_of(either_backend).runs.gpu_hours == pytest.approx(16 + 4)


def test_attempts_count_on_their_machines_in_their_months_without_the_time_between(
    either_backend: Backend,
) -> None:
    store = either_backend.store
    ran(either_backend, "r", hardware(1), 1.0)
    assert begin(store, "r", hardware(2, kind=A100), after=24 * 30) == 2
    end(store, "r", 24 * 30 + 2, attempt=2, status="failed")
    assert lines(cost_of(either_backend, by="month")) == {
        "2026-03": pytest.approx(GPU_HOUR),
        "2026-04": pytest.approx(4 * GPU_HOUR),
    }
    assert lines(cost_of(either_backend, by="gpu_type")) == {
        H100: pytest.approx(GPU_HOUR),
        A100: pytest.approx(4 * GPU_HOUR),
    }
    cost = cost_of(either_backend, by="outcome")
    assert {line.name: line.attempts for line in cost.lines} == {"completed": 1, "failed": 1}
    assert cost.runs.lost == pytest.approx(4 * GPU_HOUR)


def test_a_run_over_the_ends_of_months_is_in_each_of_them_and_one_attempt(either_backend: Backend) -> None:
    # from the 10th of March at 10 o'clock to the 9th of May
    ran(either_backend, "long", hardware(2), 24 * 60)
    ran(either_backend, "short", hardware(1), 1.0)
    cost = cost_of(either_backend, by="month")
    march = 24 * 21 + 14
    assert [(line.name, line.gpu_hours, line.attempts) for line in cost.lines] == [
        ("2026-03", pytest.approx(2 * march + 1), 1),
        ("2026-04", pytest.approx(2 * 24 * 30), 0),
        ("2026-05", pytest.approx(2 * (24 * 60 - march - 24 * 30)), 1),
    ]
    assert cost.runs.attempts == 2
    assert sum(line.cost for line in cost.lines) == pytest.approx(cost.runs.cost)
    assert {line.name: line.attempts for line in cost_of(either_backend, by="trial").lines} == {
        "vision/long": 1,
        "vision/short": 1,
    }


def test_a_run_whose_clock_was_wrong_is_of_the_month_of_its_end(either_backend: Backend) -> None:
    began = {"started": "0001-01-01T00:00:00+00:00", "provenance": {"hardware": hardware(1)}}
    RunRecords(either_backend.store, "vision", "r").start({}, {}, None, began)
    end(either_backend.store, "r", 1.0)
    assert [line.name for line in cost_of(either_backend, by="month").lines] == ["2026-03"]


def test_whatever_runs_are_told_apart_by_they_add_up_with_the_trials(
    either_backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    sweep = search(
        either_backend,
        small_spec(max_trials=2, project="vision"),
        lambda trial, params, epochs: {"score": params["x"]},
    )
    ran(either_backend, "a", hardware(2), 1.0)
    begin(either_backend.store, "b", hardware())
    end(either_backend.store, "b", 1.0, status="stop")
    for by in BY:
        cost = cost_of(either_backend, by=by)
        assert sum(line.cost for line in cost.lines) == pytest.approx(cost.trained.cost)
        assert sum(line.attempts for line in cost.lines) == cost.trained.attempts
    assert {"vision/a", "vision/b", f"{sweep}.0000"} <= {
        line.name for line in cost_of(either_backend, by="trial").lines
    }
    # the script's own word, which is no decision at a rung
    assert "ended as stop" in lines(cost_of(either_backend, by="outcome"))


def test_the_run_of_a_trial_counts_once_also_where_an_external_loop_has_recorded_it(
    either_backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    sweep = search(
        either_backend,
        small_spec(max_trials=2, resources={"gpus": 1}),
        lambda trial, params, epochs: {"score": 1.0},
    )
    before = cost_of(either_backend, "small")
    begin(either_backend.store, f"{sweep}.0000", hardware(8), project="small")
    end(either_backend.store, f"{sweep}.0000", 1.0, project="small")
    ran(
        either_backend,
        f"{sweep}.0001",
        hardware(8),
        1.0,
        project="small",
        parent={"sweep": sweep, "trial": 1},
    )
    after = cost_of(either_backend, "small")
    assert (after.trained, after.runs.attempts) == (before.trained, 0)
    # is called like a trial, and is none
    ran(either_backend, f"{sweep}.0007", hardware(1), 1.0, project="small")
    assert cost_of(either_backend, "small").runs.attempts == 1


def test_what_left_no_end_counts_until_its_last_point_and_is_said_to_be_an_estimate(
    either_backend: Backend,
) -> None:
    store = either_backend.store
    for run in ("lost", "compacted", "silent"):
        begin(store, run, hardware(1))
    log_point(store, "lost", 2.0)
    log_point(store, "compacted", 3.0)
    compact(store, "vision", "compacted")
    begin(store, "resumed", hardware(1))
    log_point(store, "resumed", 0.5)
    assert begin(store, "resumed", hardware(1), after=100) == 2
    end(store, "resumed", 101, attempt=2)
    begin(store, "recovered", hardware(1))
    end(store, "recovered", 4, status="crashed")
    write_long_ago(store)
    cost = cost_of(either_backend, by="outcome")
    assert cost.runs.gpu_hours == pytest.approx(2 + 3 + 0 + 0.5 + 1 + 4)
    assert cost.estimated == pytest.approx(9.5 * GPU_HOUR)
    assert {line.name: line.attempts for line in cost.lines} == {
        "preempted or lost": 4,
        "completed": 1,
        "crashed": 1,
    }


def test_a_run_that_trains_costs_what_it_has_held_until_now(backend: Backend) -> None:
    with halving.init(project="vision", id="r", root=backend.store.root, system_metrics=None):
        cost = cost_of(backend, by="outcome")
        assert [line.name for line in cost.lines] == ["running"]
        assert cost.estimated == cost.runs.cost
    cost_of(backend)
    assert [line.name for line in cost_of(backend, by="outcome").lines] == ["running"], (
        "it is looked at again seconds later"
    )


def test_what_other_tools_trained_is_not_counted_and_said(either_backend: Backend) -> None:
    ran(either_backend, "wandb", hardware(8), 1.0, parent={"imported": {"tool": "wandb", "run": "a"}})
    ran(either_backend, "mlflow", {}, 1.0, parent={"tracked": {"tool": "mlflow"}})
    ran(either_backend, "rest", {}, 1.0)
    cost = cost_of(either_backend)
    assert (cost.trained.attempts, cost.trained.cost, cost.elsewhere) == (0, 0.0, 3)


def test_a_renamed_projects_runs_cost_what_they_did_under_either_name(either_backend: Backend) -> None:
    ran(either_backend, "a", hardware(1), 1.0)
    set_project(either_backend.catalog, "vision", weight=1.0)
    rename_project(either_backend.catalog, "vision", "sight")
    ran(either_backend, "b", hardware(1), 1.0, project="sight")
    ran(either_backend, "c", hardware(1), 1.0, project="other")
    for name in ("vision", "sight"):
        assert lines(cost_of(either_backend, name, "project")) == {"sight": pytest.approx(2 * GPU_HOUR)}


def test_a_champion_that_is_of_a_scripts_run_costs_what_that_run_did(either_backend: Backend) -> None:
    ran(either_backend, "a", hardware(1), 1.0)
    with either_backend.catalog.write() as session:
        add_version(
            session,
            model="eyes",
            version="v1",
            stage="champion",
            sweep=None,
            trial=None,
            project="vision",
            run="a",
        )
    cost = cost_of(either_backend, "eyes")
    assert cost.champion is None
    assert cost.champion_run is not None
    assert (cost.champion_version, cost.champion_run.name, cost.champion_run.cost) == (
        "v1",
        "vision/a",
        pytest.approx(GPU_HOUR),
    )


def test_a_name_that_is_nothing_is_refused_with_the_close_one_of_runs_alone(either_backend: Backend) -> None:
    ran(either_backend, "a", hardware(1), 1.0)
    with pytest.raises(NotFound, match="no sweep, model or project 'visio'; close to it: vision"):
        cost_of(either_backend, "visio")


def test_however_many_runs_there_are_the_catalog_is_asked_as_often(either_backend: Backend) -> None:
    def statements() -> int:
        queries: list[str] = []
        listener = lambda *args: queries.append(args[2])  # noqa: E731
        event.listen(either_backend.catalog.engine, "before_cursor_execute", listener)
        cost = costs(either_backend.store, either_backend.catalog, "vision", "month", PRICES)
        event.remove(either_backend.catalog.engine, "before_cursor_execute", listener)
        assert cost.runs.attempts == written
        return len(queries)

    ran(either_backend, "r0", hardware(1), 1.0)
    Refresher(either_backend.store, either_backend.catalog).refresh()
    written = 1
    with_one = statements()
    for number in range(1, 40):
        ran(either_backend, f"r{number}", hardware(number % 3), 1.0)
    Refresher(either_backend.store, either_backend.catalog).refresh()
    written = 40
    assert statements() == with_one


def test_a_run_that_is_gone_takes_its_attempts_out_of_the_index(either_backend: Backend) -> None:
    ran(either_backend, "a", hardware(1), 1.0)
    ran(either_backend, "b", hardware(1), 1.0)
    cost_of(either_backend)
    assert either_backend.store.folder is not None
    shutil.rmtree(either_backend.store.folder / "runs/project=vision/a")
    assert cost_of(either_backend).runs.attempts == 1
    with either_backend.catalog.read() as session:
        assert len(session.scalars(select(RunAttemptRow)).all()) == 1
