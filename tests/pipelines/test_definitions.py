"""The code location as a whole."""

import itertools
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipelines.definitions import defs
from pipelines.schedules import scheduled_retraining
from pipelines.step_outputs import step_outputs
from resources.backend import Backend
from resources.datasets.data_checks import CHECKS
from resources.sweep_spec.gates import KINDS
from tests.backends import CHECKOUT, Dagster


def test_the_definitions_load_and_can_be_launched() -> None:
    dg.Definitions.validate_loadable(defs)


def test_the_five_assets_are_one_line_of_descent() -> None:
    graph = defs.resolve_asset_graph()
    line = ["dataset_snapshot", "sweep", "trial", "evaluation_report", "promoted_checkpoint"]
    for above, below in itertools.pairwise(line):
        assert graph.get(dg.AssetKey(below)).parent_keys == {dg.AssetKey(above)}
    for name in line:
        assert graph.get(dg.AssetKey(name)).description


def test_the_gates_are_blocking_checks_of_the_report() -> None:
    graph = defs.resolve_asset_graph()
    checks = {
        key.name: graph.get(key).blocking
        for key in graph.asset_check_keys
        if key.asset_key == dg.AssetKey("evaluation_report")
    }
    assert checks == dict.fromkeys(KINDS, True)


def test_a_snapshot_has_its_data_checks() -> None:
    keys = defs.resolve_asset_graph().asset_check_keys
    assert {key.name for key in keys if key.asset_key == dg.AssetKey("dataset_snapshot")} == set(CHECKS)


@pytest.mark.parametrize(
    "selection",
    ['group:"halving"', '+key:"evaluation_report"', 'key:"*report*"', 'kind:"dvc" or kind:"plotly"'],
)
def test_string_selections_work_beside_dvc(selection: str) -> None:
    # dvc's stable hydra and omegaconf bring antlr 4.9, whose parser raises TypeError: ord() on every one of
    # these.
    assert dg.AssetSelection.from_string(selection).resolve(defs.resolve_asset_graph())


def test_the_sensors_run_by_default_and_the_schedule_does_not() -> None:
    assert {sensor.name: sensor.default_status for sensor in defs.sensors or []} == dict.fromkeys(
        ("launch_requested", "start_trials", "retry_crashed_trials", "stop_diverged_trials", "finish_sweeps"),
        dg.DefaultSensorStatus.RUNNING,
    )
    assert scheduled_retraining.default_status is dg.DefaultScheduleStatus.STOPPED


def test_scheduled_retraining_asks_for_a_run_that_the_sweep_job_accepts() -> None:
    tick = scheduled_retraining.evaluate_tick(
        dg.build_schedule_context(scheduled_execution_time=datetime(2026, 1, 1, 3, tzinfo=UTC))
    )
    (request,) = tick.run_requests or []
    dg.validate_run_config(defs.resolve_job_def("sweep"), request.run_config)
    assert request.run_config == yaml.safe_load((CHECKOUT / "sweeps" / "digits.yaml").read_text())


def test_each_feature_view_has_a_daily_schedule_for_the_day_before_that_is_off() -> None:
    view, online = (
        defs.resolve_schedule_def(f"daily_{name}") for name in ("feature_view__clicks_v1", "online_features")
    )
    assert (view.default_status, online.default_status) == (dg.DefaultScheduleStatus.STOPPED,) * 2
    assert (view.cron_schedule, online.cron_schedule) == ("0 6 * * *", "0 7 * * *")
    tick = view.evaluate_tick(
        dg.build_schedule_context(scheduled_execution_time=datetime(2026, 3, 3, 6, tzinfo=UTC))
    )
    assert [request.partition_key for request in tick.run_requests or []] == ["2026-03-02"]


@pytest.mark.slow
def test_the_jobs_are_listed_by_dagsters_own_command(tmp_path: Path) -> None:
    dagster = Dagster(tmp_path)
    listed = subprocess.run(
        [sys.executable, "-m", "dagster", "job", "list", "-w", "workspace.yaml"],
        cwd=CHECKOUT,
        env=dagster.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    decisions = ("promote_version", "rollback_model", "approve_version", "reject_version")
    for job in ("sweep", "launch_sweep", "run_trial", "conclude_sweep", *decisions):
        assert f"Job: {job}\n" in listed


@pytest.mark.slow
def test_importing_the_definitions_does_not_import_what_only_trials_need() -> None:
    heavy = ["torch", "optuna", "sklearn", "scipy.stats", "pandas", "duckdb", "plotly", "dvc", "alembic"]
    code = (
        f"import sys, json, pipelines.definitions; print(json.dumps([name for name in {heavy} if name in "
        "sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_steps_hand_on_what_they_give_in_the_store_of_the_runs_own_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_ROOT", str(tmp_path / "environment"))

    @dg.op
    def make_plan() -> dict[str, int]:
        return {"slot": 3}

    @dg.op
    def use_plan(planned: dict[str, int]) -> None:
        assert planned == {"slot": 3}

    @dg.job(
        resource_defs={
            "backend": Backend(root=str(tmp_path / "definitions")).get_resource_definition(),
            "io_manager": step_outputs,
        }
    )
    def both() -> None:
        use_plan(make_plan())

    config = {"resources": {"backend": {"config": {"root": str(tmp_path / "run")}}}}
    assert both.execute_in_process(run_config=config).success
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
