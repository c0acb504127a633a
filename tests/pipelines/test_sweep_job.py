"""The main job as CI of a user runs it: Dagster's own command on a YAML file, and what is there afterwards.

Where only that matters what a job does with a spec, it is executed in the test's process: a fifth of the
time.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from sqlalchemy import select

from halving.records.run_record import RunRecords
from pipelines.definitions import defs
from resources.analysis.summary import SweepSummary, summarize
from resources.analysis.trial_curves import curves
from resources.catalog import ModelVersionRow, ReportRow, RungResultRow, SweepRow
from resources.evaluation.report import report_path
from resources.sweep_spec.gates import KINDS
from tests.backends import CHECKOUT, SMALL, Dagster
from tests.commands.shell import Swept, on_swept
from tests.waiting import is_worked_in, wait_for

Small = Callable[..., dict[str, Any]]


class Executed:
    """One or more executions of a spec on one instance."""

    def __init__(self, folder: Path, spec: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.dagster = Dagster(folder)
        self.config = folder / "sweep.yaml"
        if spec:
            self.config.write_text(yaml.safe_dump(spec))
        self.backend = self.dagster.backend

    def copy(self, folder: Path, spec: dict[str, Any]) -> "Executed":
        """A copy of the instance and store in another folder, in which a spec is executed next.

        What was executed before need not be executed again.
        """
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Executed(folder, spec)

    def run(self) -> "subprocess.CompletedProcess[str]":
        return self.dagster.execute_sweep(self.config)

    def run_here(self) -> tuple[bool, str]:
        """Whether it succeeded, and why its steps failed."""
        spec = yaml.safe_load(self.config.read_text())
        with pytest.MonkeyPatch.context() as patched, self.instance() as instance:
            patched.setenv("HALVING_ROOT", self.backend.store.root)
            done = defs.get_job_def("sweep").execute_in_process(
                run_config=spec, instance=instance, raise_on_error=False
            )
        failures = [event.step_failure_data for event in done.all_events if event.is_step_failure]
        return done.success, "\n".join(failure.error_display_string for failure in failures)

    def sweeps(self) -> list[SweepRow]:
        with self.backend.catalog.read() as session:
            return list(session.scalars(select(SweepRow).order_by(SweepRow.created_at)))

    def summary(self) -> SweepSummary:
        return summarize(self.backend.catalog, self.sweeps()[-1].id)

    def params(self, trial: int) -> dict[str, Any]:
        with self.backend.catalog.read() as session:
            return self.backend.catalog.trials(session, self.sweeps()[-1].id)[trial].params

    def results(self) -> list[RungResultRow]:
        with self.backend.catalog.read() as session:
            return list(session.scalars(select(RungResultRow)))

    def versions(self) -> list[ModelVersionRow]:
        with self.backend.catalog.read() as session:
            return list(session.scalars(select(ModelVersionRow).order_by(ModelVersionRow.created_at)))

    def instance(self) -> dg.DagsterInstance:
        return dg.DagsterInstance.from_config(str(self.dagster.home))


@pytest.fixture
def executed_sweep(swept_lab: Swept) -> Executed:
    """The small sweep, which ``halving sweep`` has executed with Dagster's own command."""
    assert swept_lab.status == 0, swept_lab.out + swept_lab.err
    return Executed(swept_lab.shell.folder)


@on_swept
def test_the_job_succeeds_and_says_what_happened(executed_sweep: Executed) -> None:
    (log,) = (executed_sweep.dagster.home / "logs").glob("small-*.log")
    said = log.read_text()
    (sweep,) = executed_sweep.sweeps()
    assert sweep.status == "finished"
    assert f"sweep {sweep.id}: up to 9 trials, rungs at 1, 3, 9 epochs" in said
    assert "after 1 epochs (rung 0): paused" in said
    assert "model small 1.0.0 is champion" in said


@on_swept
def test_every_rung_of_every_trial_is_a_materialization_of_its_partition(executed_sweep: Executed) -> None:
    results = {
        (f"{result.sweep}.{result.trial:04d}", result.rung): result for result in executed_sweep.results()
    }
    with executed_sweep.instance() as instance:
        records = instance.fetch_materializations(dg.AssetKey("trial"), limit=1000).records
    assert len(records) == len(results)
    for record in records:
        event = record.asset_materialization
        assert event is not None
        metadata = {name: value.value for name, value in event.metadata.items()}
        result = results[str(record.partition_key), metadata["rung"]]
        assert metadata["objective"] == result.value
        assert metadata["epochs"] == result.epochs
        assert metadata["checkpoint"] == result.checkpoint == (event.tags or {})["dagster/data_version"]
        assert metadata["param/x"] == executed_sweep.params(result.trial)["x"]
        assert metadata["report"] == f"/assets/evaluation_report?view=partitions&partition={result.sweep}"
        assert (event.tags or {})["dagster/input_data_version/dataset_snapshot"] == executed_sweep.sweeps()[
            0
        ].snapshot


@on_swept
def test_each_asset_has_its_partitions_and_descends_from_the_one_above_by_digest(
    executed_sweep: Executed,
) -> None:
    (sweep,) = executed_sweep.sweeps()
    snapshot = f"points@{sweep.snapshot.removeprefix('sha256:')[:16]}"
    with executed_sweep.instance() as instance:
        assert instance.get_dynamic_partitions("datasets") == [snapshot]
        assert instance.get_dynamic_partitions("sweeps") == [sweep.id]
        assert instance.get_dynamic_partitions("trials") == [
            f"{sweep.id}.{number:04d}" for number in range(9)
        ]
        versions = {}
        for asset in ("dataset_snapshot", "sweep", "evaluation_report", "promoted_checkpoint"):
            (record,) = instance.fetch_materializations(dg.AssetKey(asset), limit=10).records
            assert record.asset_materialization is not None
            versions[asset] = record.asset_materialization.tags or {}
    (version,) = executed_sweep.versions()
    assert (
        versions["sweep"]["dagster/input_data_version/dataset_snapshot"]
        == versions["dataset_snapshot"]["dagster/data_version"]
    )
    assert versions["evaluation_report"]["dagster/input_data_version/trial"] == version.checkpoint
    assert versions["promoted_checkpoint"]["dagster/input_data_version/evaluation_report"] == version.report
    assert versions["promoted_checkpoint"]["dagster/data_version"] == version.checkpoint


@on_swept
def test_the_gates_are_recorded_as_checks_of_the_report(executed_sweep: Executed) -> None:
    report = dg.AssetKey("evaluation_report")
    with executed_sweep.instance() as instance:
        for gate in KINDS:
            check = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(report, gate))
            assert check is not None
            assert check.status.value == "SUCCEEDED"


@on_swept
def test_the_winner_is_the_best_of_the_highest_rung_and_is_promoted_by_its_digest(
    executed_sweep: Executed,
) -> None:
    summary = executed_sweep.summary()
    (version,) = executed_sweep.versions()
    best = max(
        (result for result in executed_sweep.results() if result.epochs == 9),
        key=lambda result: result.value or 0,
    )
    assert summary.best is not None
    assert (
        (version.trial, version.checkpoint)
        == (best.trial, best.checkpoint)
        == (summary.best.trial, summary.best.checkpoint)
    )
    assert (version.version, version.stage, version.metrics["accuracy"]) == ("1.0.0", "champion", 1.0)
    assert version.input_schema == {"x": "double"}
    assert version.output_schema == {"type": "string", "classes": ["high", "low"]}
    assert executed_sweep.backend.store.get_blob(version.checkpoint)


@on_swept
def test_the_report_is_one_page_that_needs_no_network_and_its_data_is_kept_by_digest(
    executed_sweep: Executed,
) -> None:
    (sweep,) = executed_sweep.sweeps()
    page = executed_sweep.backend.store.read(report_path(sweep.id)).decode()
    with executed_sweep.backend.catalog.read() as session:
        row = session.get(ReportRow, sweep.id)
    assert row is not None
    assert executed_sweep.backend.store.get_blob(row.html).decode() == page
    data = json.loads(executed_sweep.backend.store.get_blob(row.digest))
    for link in ('src="http', "src='http", "<link", "@import"):
        assert link not in page.partition("</script>")[2]
    assert data["confusion"] == [[data["per_class"][0]["rows"], 0], [0, data["per_class"][1]["rows"]]]
    assert data["summary"]["rungs"][0]["reached"] == 9
    assert data["saved"] == executed_sweep.summary().saved > 0.3


@on_swept
def test_metrics_of_every_trained_epoch_are_in_parquet(executed_sweep: Executed) -> None:
    for standing in executed_sweep.summary().standings:
        steps = curves(executed_sweep.backend.store, "small", [standing.key], "train/loss")[
            "step"
        ].to_pylist()
        assert steps == list(range(1, standing.epochs + 1))


@on_swept
def test_a_finished_sweep_launched_again_is_a_new_one_whose_winner_is_staging(
    executed_sweep: Executed, tmp_path: Path
) -> None:
    executed = executed_sweep.copy(tmp_path, SMALL)
    # which `halving sweep` left, as all of this store is of today
    assert executed.backend.store.names("retention/begun")
    executed.backend.store.delete_below("retention")
    assert executed.run_here() == (True, "")
    assert executed.backend.store.names("retention/begun")  # and so does the job alone
    first, second = executed.sweeps()
    assert first.snapshot == second.snapshot
    assert first.id != second.id
    assert [(version.version, version.stage) for version in executed.versions()] == [
        ("1.0.0", "champion"),
        ("1.0.1", "staging"),
    ]
    report = json.loads(executed.backend.store.get_blob(executed.versions()[1].report))
    assert report["champion"]["version"] == "1.0.0"
    assert report["champion"]["metrics"]["accuracy"] == 1.0


@on_swept
def test_a_winner_worse_than_the_champion_is_rejected_by_its_gate_and_the_job_fails(
    executed_sweep: Executed, tmp_path: Path, small: Small
) -> None:
    executed = executed_sweep.copy(tmp_path, small(max_trials=3, predictor="tests.trainables:predict_badly"))
    process = executed.run()
    assert process.returncode != 0
    assert "non_inferior: accuracy 0." in process.stderr
    assert [version.version for version in executed.versions()] == ["1.0.0"]
    assert [sweep.status for sweep in executed.sweeps()] == ["finished", "rejected"]


@pytest.mark.slow
def test_metrics_that_are_not_finite_fail_their_gate_with_the_reports_address(
    tmp_path: Path, small: Small
) -> None:
    dataset = {"name": "numbers", "source": "tests.trainables:numbers", "target": "y"}
    executed = Executed(
        tmp_path, small(max_trials=3, dataset=dataset, predictor="tests.trainables:predict_nan")
    )
    succeeded, why = executed.run_here()
    assert not succeeded
    assert "finite_metrics: not finite: mae, r2, rmse" in why
    assert executed.versions() == []
    assert executed.backend.store.exists(report_path(executed.sweeps()[0].id))


@pytest.mark.slow
def test_a_failed_trial_fails_the_job_after_the_winner_was_promoted(tmp_path: Path, small: Small) -> None:
    executed = Executed(tmp_path, small(trainable="tests.trainables:train_raising", max_retries=0))
    succeeded, why = executed.run_here()
    assert not succeeded
    assert "is too much for me" in why
    assert "The sweep's result stands; the job fails because max_failed_trials is 0" in why
    assert len(executed.versions()) == 1
    failed = executed.summary().failed
    with executed.instance() as instance:
        records = instance.fetch_observations(dg.AssetKey("trial"), limit=100).records
    assert {record.partition_key for record in records} == {trial["key"] for trial in failed}
    for record in records:
        assert record.asset_observation is not None
        assert "too much for me" in str(record.asset_observation.metadata["traceback"].value)


@pytest.mark.slow
def test_failed_trials_that_the_spec_accepts_leave_the_job_green(tmp_path: Path, small: Small) -> None:
    executed = Executed(tmp_path, small(trainable="tests.trainables:train_diverging", max_failed_trials=9))
    assert executed.run_here() == (True, "")
    assert executed.summary().failed
    assert len(executed.versions()) == 1


@pytest.mark.slow
def test_a_sweep_whose_every_trial_fails_fails_the_job_and_says_why_once(
    tmp_path: Path, small: Small
) -> None:
    executed = Executed(
        tmp_path,
        small(trainable="tests.trainables:train_raising_always", max_retries=0, max_failed_trials=99),
    )
    succeeded, why = executed.run_here()
    assert not succeeded
    (sweep,) = executed.sweeps()
    assert sweep.status == "failed"
    said = (
        f"sweep {sweep.id} has no result: 9 trials failed: {sweep.id}.0000, {sweep.id}.0001, "
        f"{sweep.id}.0002 and 6 more"
    )
    assert f"{said}: RuntimeError: no trial of this sweep can work" in why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trainable": "tests.trainables:trian"}, "trainable = 'tests.trainables:trian' is not accepted"),
        ({"dataset": {**SMALL["dataset"], "source": "nowhere.at_all:data"}}, "there is no module 'nowhere'"),
    ],
)
def test_names_of_what_is_not_there_end_in_one_clear_error_before_anything_runs(
    tmp_path: Path, small: Small, change: dict[str, Any], said: str
) -> None:
    executed = Executed(tmp_path, small(**change))
    succeeded, why = executed.run_here()
    assert not succeeded
    assert said in why
    nothing_ran(executed)


@pytest.mark.slow
def test_bad_input_ends_in_one_clear_error_before_anything_runs(tmp_path: Path, small: Small) -> None:
    executed = Executed(tmp_path, small(space={"x": {"float": {"low": 1.0, "high": 1.0}}}))
    process = executed.run()
    assert process.returncode != 0
    assert "space.x.float is not accepted: low = 1.0 must be below high = 1.0" in process.stderr
    nothing_ran(executed)


def nothing_ran(executed: Executed) -> None:
    assert executed.sweeps() == []
    assert executed.backend.store.names("datasets") == []


@pytest.mark.slow
def test_a_killed_job_resumes_the_same_sweep_and_repeats_no_checkpointed_epoch(
    tmp_path: Path, small: Small
) -> None:
    executed = Executed(tmp_path, small(trainable="tests.trainables:train_slowly", max_trials=9))
    epochs = Path(executed.backend.store.root, "epochs")
    arguments = ["job", "execute", "-m", "pipelines.definitions", "-j", "sweep", "-c", str(executed.config)]
    process = executed.dagster.start(*arguments, log=tmp_path / "killed.log")
    wait_for(lambda: epochs.exists() and len(epochs.read_text().splitlines()) >= 14, 120, "14 epochs")
    assert is_worked_in(executed.backend.store.root)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not is_worked_in(executed.backend.store.root), 120, "the end of its trials")

    before = {(result.trial, result.rung): (result.value, result.attempt) for result in executed.results()}
    checkpointed = {
        (key, saved.epoch)
        for key in executed.backend.store.names("runs/project=small")
        for saved in RunRecords(executed.backend.store, "small", key).checkpoints()
    }
    trained_before = epochs.read_text().splitlines()
    assert before
    assert checkpointed

    again = executed.run()
    assert again.returncode == 0, again.stderr[-3000:]
    (sweep,) = executed.sweeps()
    assert sweep.status == "finished"
    after = {(result.trial, result.rung): (result.value, result.attempt) for result in executed.results()}
    assert before.items() <= after.items()
    trained_after = epochs.read_text().splitlines()[len(trained_before) :]
    again_trained = {(line.split()[0], int(line.split()[1])) for line in trained_after}
    assert again_trained.isdisjoint(checkpointed)
    for standing in executed.summary().standings:
        steps = curves(executed.backend.store, "small", [standing.key], "score")["step"].to_pylist()
        assert steps == list(range(1, standing.epochs + 1))
    with executed.instance() as instance:
        logged = {
            (record.partition_key, record.asset_materialization.metadata["rung"].value)
            for record in instance.fetch_materializations(dg.AssetKey("trial"), limit=1000).records
            if record.asset_materialization
        }
    assert logged == {(f"{sweep.id}.{trial:04d}", rung) for trial, rung in after}


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_trial_goes_on_from_its_checkpoint(
    tmp_path: Path, small: Small
) -> None:
    executed = Executed(
        tmp_path,
        small(trainable="tests.trainables:train_slowly", max_trials=2, strategy={"random": {"budget": 20}}),
    )
    epochs = Path(executed.backend.store.root, "epochs")
    arguments = ["job", "execute", "-m", "pipelines.definitions", "-j", "sweep", "-c", str(executed.config)]
    process = executed.dagster.start(*arguments, log=tmp_path / "job.log")
    wait_for(lambda: epochs.exists() and len(epochs.read_text().splitlines()) >= 10, 120, "10 epochs")
    first = RunRecords(executed.backend.store, "small", f"{executed.sweeps()[0].id}.0000")
    wait_for(first.checkpoints, 120, "a checkpoint")
    with executed.backend.catalog.read() as session:
        killed = executed.backend.catalog.trials(session, executed.sweeps()[0].id)[0]
    os.kill(int(str(killed.worker).rpartition(":")[2]), signal.SIGKILL)
    assert process.wait() == 0, (tmp_path / "job.log").read_text()[-3000:]
    with executed.backend.catalog.read() as session:
        trials = executed.backend.catalog.trials(session, killed.sweep)
    stand = [(trial.status, trial.attempt, trial.preemptions, trial.failures) for trial in trials]
    assert stand == [("completed", 2, 1, 0), ("completed", 1, 0, 0)]
    points = curves(executed.backend.store, "small", [f"{killed.sweep}.0000"], "score")
    assert points["step"].to_pylist() == list(range(1, 21))
    saved = RunRecords(executed.backend.store, "small", f"{killed.sweep}.0000").checkpoints()
    assert {entry.attempt for entry in saved} == {1, 2}, (
        "the second attempt went on from the first one's checkpoint"
    )


@pytest.mark.slow
def test_dagsters_own_script_finds_a_trainable_in_the_folder_where_it_is_started(
    tmp_path: Path, small: Small
) -> None:
    (tmp_path / "my_project.py").write_text("from tests.trainables import data, predict, train\n")
    dataset = {**SMALL["dataset"], "source": "my_project:data"}
    executed = Executed(
        tmp_path,
        small(max_trials=1, trainable="my_project:train", predictor="my_project:predict", dataset=dataset),
    )
    script = str(Path(sys.executable).parent / "dagster")
    environment = {
        name: value for name, value in executed.dagster.environment.items() if name != "DAGSTER_HOME"
    }
    done = subprocess.run(
        [script, "job", "execute", "-m", "pipelines.definitions", "-j", "sweep", "-c", str(executed.config)],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
