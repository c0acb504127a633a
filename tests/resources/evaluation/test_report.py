"""The report in a real browser, and what it says about lineage, failures and the champion."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving import Dataset, Store
from halving.records.run_record import RunRecords
from resources.analysis.summary import summarize
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.evaluation.page import number
from resources.evaluation.report import EvaluationReport, NoWinner, evaluate_sweep, explain_failures, load_report, report_path
from resources.execution.worker import TrialRunner, work
from resources.registry.gates import GateFailed
from resources.registry.promotion import judge, missing_lineage, promote_winner
from resources.registry.versions import archive
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import add_version
from tests.browser import CHROMIUM, MISSING, chromium, errors_of

Spec = Callable[..., SweepSpec]


@pytest.fixture
def worked(backend: Backend, small_spec: Spec) -> Callable[..., str]:
    """Search a spec to its end in this process, and give the sweep."""

    def run(**changes: Any) -> str:
        spec = small_spec(**changes)
        snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
        scheduler = Scheduler(backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None).id)
        runner = TrialRunner(scheduler, backend.store, dataset_name=snapshot.name, dataset_digest=snapshot.digest, labels={})
        work(scheduler, runner, lambda changed: None)
        return scheduler.id

    return run


def promoted(backend: Backend, sweep: str) -> EvaluationReport:
    report = evaluate_sweep(backend.store, backend.catalog, sweep)
    return promote_winner(backend, report)[1]


@pytest.mark.service
@pytest.mark.skipif(not CHROMIUM.exists(), reason=MISSING)
def test_the_page_draws_its_charts_in_a_browser_without_a_network(backend: Backend, worked: Callable[..., str]) -> None:
    sweep = worked(trainable="tests.trainables:train_raising", max_retries=0)
    promoted(backend, sweep)
    with chromium("--host-resolver-rules=MAP * ~NOTFOUND") as browser:
        page = browser.new_page()
        errors = errors_of(page)
        page.goto(f"file://{backend.store.path(report_path(sweep))}")
        charts = page.locator(".js-plotly-plot .main-svg").count()
        text = page.locator("body").inner_text()
    assert errors == []
    assert charts >= 6
    for said in (sweep, "Winner", "Confusion matrix", "Failed trials", "is too much for me", "There is no champion", "stopped here"):
        assert said in text
    for said in (
        "Optimisation history",
        "Rung ladder",
        "Slices",
        "What early stopping saved",
        "Was pruning right?",
        "halving replay",
    ):
        assert said in text


@pytest.mark.slow
def test_a_report_is_found_again_and_names_what_was_stopped_where(backend: Backend, worked: Callable[..., str]) -> None:
    sweep = worked()
    made = promoted(backend, sweep)
    found = load_report(backend.store, backend.catalog, sweep)
    assert (found.digest, found.html_digest, found.path) == (made.digest, made.html_digest, made.path)
    rungs = found.data["summary"]["rungs"]
    for rung, following in itertools.pairwise(rungs):
        assert rung["reached"] == sum(rung[became] for became in ("promoted", "paused", "stopped", "completed", "failed"))
        assert rung["promoted"] == following["reached"]
    assert found.data["summary"]["epochs_trained"] == sum(s["epochs"] for s in found.data["summary"]["standings"])
    assert f"`{found.data['winner']['key']}`" in found.preview
    assert len(found.preview) < 3000


@pytest.mark.slow
def test_a_report_compares_with_the_champion_on_the_same_rows(backend: Backend, worked: Callable[..., str]) -> None:
    promoted(backend, worked())
    report = evaluate_sweep(backend.store, backend.catalog, worked(seed=1, predictor="tests.trainables:predict_badly"))
    champion = report.data["champion"]
    assert (champion["version"], champion["same_snapshot"], champion["metrics"]["accuracy"]) == ("1.0.0", True, 1.0)
    assert report.data["metrics"]["accuracy"] < 1
    page = backend.store.get_blob(report.html_digest).decode()
    assert "champion 1.0.0" in page
    assert "Champion 1.0.0 on the same split: accuracy 1.0000" in report.preview


@pytest.mark.slow
def test_a_champion_that_a_client_registered_is_compared_with_by_nobody_until_it_is_archived(
    backend: Backend, worked: Callable[..., str]
) -> None:
    with backend.catalog.write() as session:
        add_version(session, model="small", version="1.0.0", stage="champion", source="s3://bucket/net")
    report = evaluate_sweep(backend.store, backend.catalog, worked())
    assert "a client registered it" in backend.store.get_blob(report.html_digest).decode()
    with pytest.raises(
        GateFailed, match=r"champion small 1\.0\.0 could not be evaluated .*: a client registered it, .*halving archive small 1"
    ):
        promote_winner(backend, report)
    archive(backend.catalog, "small", "1.0.0")
    row, _ = promote_winner(backend, report)
    assert (row.version, row.stage) == ("2.0.0", "champion")


@pytest.mark.slow
def test_a_champion_from_another_snapshot_is_said_to_be_so(backend: Backend, worked: Callable[..., str], small: Callable[..., Any]) -> None:
    promoted(backend, worked())
    report = evaluate_sweep(backend.store, backend.catalog, worked(dataset={**small()["dataset"], "seed": 5}))
    assert report.data["champion"]["same_snapshot"] is False
    assert "was trained on another snapshot" in backend.store.get_blob(report.html_digest).decode()


@pytest.mark.slow
def test_a_report_reads_the_test_split_once_for_the_winner_and_the_champion(
    backend: Backend, worked: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    promoted(backend, worked(max_trials=1))
    sweep, read, splits = worked(max_trials=1, seed=1), Dataset.read, []
    monkeypatch.setattr(Dataset, "read", lambda dataset, split=None: splits.append(split) or read(dataset, split))
    assert evaluate_sweep(backend.store, backend.catalog, sweep).data["champion"]["metrics"]
    assert splits == ["test"]


@pytest.mark.slow
def test_the_gates_look_for_the_checkpoint_without_reading_it(
    backend: Backend, worked: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = evaluate_sweep(backend.store, backend.catalog, worked(max_trials=1))
    read, names = Store.read, list[str]()
    monkeypatch.setattr(Store, "read", lambda store, name: names.append(name) or read(store, name))
    assert all(gate.passed for gate in judge(backend.store, report))
    assert names
    assert not [name for name in names if name.startswith("artifacts/")]


@pytest.mark.slow
def test_complete_lineage_misses_nothing_and_each_loss_is_named(backend: Backend, worked: Callable[..., str]) -> None:
    report = evaluate_sweep(backend.store, backend.catalog, worked(max_trials=1))
    assert missing_lineage(backend.store, report.data) == []
    other = {**report.data, "snapshot": {**report.data["snapshot"], "digest": "sha256:other"}}
    assert "snapshot: the run trained on sha256:" in missing_lineage(backend.store, other)[0]
    winner = report.data["winner"]
    Path(backend.store.path(f"artifacts/sha256/{winner['checkpoint'][7:9]}/{winner['checkpoint'][7:]}")).unlink()
    assert any(missing.startswith(f"checkpoint: no blob {winner['checkpoint']}") for missing in missing_lineage(backend.store, report.data))
    record = Path(backend.store.path(f"{RunRecords(backend.store, 'small', winner['key']).folder}/record.json"))
    changed = json.loads(record.read_text())
    changed["params"]["x"] = 2
    record.write_text(json.dumps(changed))
    assert any("params" in missing for missing in missing_lineage(backend.store, report.data))
    record.unlink()
    assert missing_lineage(backend.store, report.data)[0].startswith("run record (no run")


@pytest.mark.slow
def test_a_sweep_without_a_result_has_no_report_but_its_reasons(backend: Backend, worked: Callable[..., str]) -> None:
    sweep = worked(trainable="tests.trainables:train_raising_always", max_retries=0, max_trials=2)
    with pytest.raises(NoWinner, match=r"2 trials failed: .*0000, .*0001: RuntimeError: no trial of this sweep can work"):
        evaluate_sweep(backend.store, backend.catalog, sweep)
    with pytest.raises(NoWinner, match="has no evaluation report yet"):
        load_report(backend.store, backend.catalog, sweep)


@pytest.mark.slow
def test_what_early_stopping_saved_is_counted_in_epochs(backend: Backend, worked: Callable[..., str]) -> None:
    summary = summarize(backend.catalog, worked())
    assert summary.epochs_full == 9 * 9
    assert summary.epochs_trained == sum(standing.epochs for standing in summary.standings) < 81
    assert summary.saved == pytest.approx(1 - summary.epochs_trained / 81)


def test_the_same_reason_is_given_once() -> None:
    failed = [{"key": f"s.{number}", "error": f"trace\n{'A' if number else 'B'}: why"} for number in range(6)]
    assert explain_failures(failed) == "6 trials failed: s.0: B: why; s.1, s.2, s.3 and 2 more: A: why"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.97211, "0.9721"),
        (0.0, "0.0000"),
        (1e-5, "1e-05"),
        (12345.678, "1.23e+04"),
        (7, "7"),
        ("adam", "adam"),
        (True, "True"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_are_shown_short(value: Any, shown: str) -> None:
    assert number(value) == shown
