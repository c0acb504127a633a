"""The report in a real browser, and what it says about lineage, failures and the champion."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from halving import Dataset, InvalidInput, Store
from halving.records.run_record import RunRecords
from resources.analysis.summary import summarize
from resources.backend import Backend
from resources.catalog import SplitLookRow
from resources.datasets.snapshots import take_snapshot
from resources.evaluation import predictions
from resources.evaluation.measures import metric_on
from resources.evaluation.page import number
from resources.evaluation.report import (
    NoWinner,
    evaluate_sweep,
    explain_failures,
    load_report,
    report_path,
)
from resources.evaluation.scoring import PredictionFailed
from resources.evaluation.spec_checks import check_evaluation
from resources.registry.gates.judge import judge_lineage_again
from resources.registry.gates.lineage import judge_lineage
from resources.registry.promotion import evaluate, make_report, promote_winner
from resources.sweep_spec import SweepSpec
from tests.browser import CHROMIUM, MISSING, chromium, errors_of
from tests.resources.evaluation.reports import promote_winner_of

Spec = Callable[..., SweepSpec]
MANY = {"name": "many", "source": "tests.trainables:many", "target": "label"}


@pytest.mark.service
@pytest.mark.skipif(not CHROMIUM.exists(), reason=MISSING)
def test_the_page_draws_its_charts_in_a_browser_without_a_network(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    sweep = search_sweep(trainable="tests.trainables:train_raising", max_retries=0)
    promote_winner_of(backend, sweep)
    with chromium("--host-resolver-rules=MAP * ~NOTFOUND") as browser:
        page = browser.new_page()
        errors = errors_of(page)
        page.goto(f"file://{backend.store.path(report_path(sweep))}")
        charts = page.locator(".js-plotly-plot .main-svg").count()
        text = page.locator("body").inner_text()
    assert errors == []
    assert charts >= 6
    for said in (
        sweep,
        "Winner",
        "Confusion matrix",
        "Failed trials",
        "is too much for me",
        "There is no champion",
        "stopped here",
    ):
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
def test_a_report_is_found_again_and_names_what_was_stopped_where(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    sweep = search_sweep()
    made = promote_winner_of(backend, sweep)
    loaded = load_report(backend.store, backend.catalog, sweep)
    assert (loaded.digest, loaded.html_digest, loaded.path) == (made.digest, made.html_digest, made.path)
    rungs = loaded.data["summary"]["rungs"]
    for rung, following in itertools.pairwise(rungs):
        assert rung["reached"] == sum(
            rung[became] for became in ("promoted", "paused", "stopped", "completed", "failed")
        )
        assert rung["promoted"] == following["reached"]
    assert loaded.data["summary"]["epochs_trained"] == sum(
        s["epochs"] for s in loaded.data["summary"]["standings"]
    )
    assert f"`{loaded.data['winner']['key']}`" in loaded.preview
    assert len(loaded.preview) < 3000


@pytest.mark.slow
def test_the_gates_look_for_the_checkpoint_without_reading_it(
    backend: Backend, search_sweep: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = make_report(backend, search_sweep(max_trials=1))
    read = Store.read
    names = list[str]()
    monkeypatch.setattr(Store, "read", lambda store, name: names.append(name) or read(store, name))
    assert all(verdict.passed for verdict in judge_lineage_again(backend.store, report.data))
    assert names
    assert not [name for name in names if name.startswith("artifacts/")]


@pytest.mark.slow
def test_complete_lineage_misses_nothing_and_each_loss_is_named(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    report = evaluate_sweep(backend.store, backend.catalog, search_sweep(max_trials=1))

    def missing(data: dict[str, Any]) -> str:
        return judge_lineage(backend.store, data).reason

    assert judge_lineage(backend.store, report.data).passed
    other = {**report.data, "snapshot": {**report.data["snapshot"], "digest": "sha256:other"}}
    assert missing(other).startswith("missing: snapshot: the run trained on sha256:")
    winner = report.data["winner"]
    Path(
        backend.store.path(f"artifacts/sha256/{winner['checkpoint'][7:9]}/{winner['checkpoint'][7:]}")
    ).unlink()
    assert missing(report.data).startswith(f"missing: checkpoint: no blob {winner['checkpoint']}")
    record = Path(
        backend.store.path(f"{RunRecords(backend.store, 'small', winner['key']).folder}/record.json")
    )
    changed = json.loads(record.read_text())
    changed["params"]["x"] = 2
    record.write_text(json.dumps(changed))
    assert missing(report.data).startswith("missing: params: ")
    record.unlink()
    assert missing(report.data).startswith("missing: run record (no run")


@pytest.mark.slow
def test_a_sweep_without_a_result_has_no_report_but_its_reasons(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    sweep = search_sweep(trainable="tests.trainables:train_raising_always", max_retries=0, max_trials=2)
    with pytest.raises(
        NoWinner, match=r"2 trials failed: .*0000, .*0001: RuntimeError: no trial of this sweep can work"
    ):
        evaluate_sweep(backend.store, backend.catalog, sweep)
    with pytest.raises(NoWinner, match="has no evaluation report yet"):
        load_report(backend.store, backend.catalog, sweep)


@pytest.mark.slow
def test_what_early_stopping_saved_is_counted_in_epochs(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    summary = summarize(backend.catalog, search_sweep())
    assert summary.epochs_full == 9 * 9
    assert summary.epochs_trained == sum(standing.epochs for standing in summary.standings) < 81
    assert summary.saved == pytest.approx(1 - summary.epochs_trained / 81)


def test_the_same_reason_is_given_once() -> None:
    failed = [{"key": f"s.{number}", "error": f"trace\n{'A' if number else 'B'}: why"} for number in range(6)]
    assert explain_failures(failed) == "6 trials failed: s.0: B: why; s.1, s.2, s.3 and 2 more: A: why"


def test_a_failure_is_told_with_the_line_of_code_that_raised_and_a_hang_without_one() -> None:
    raised = (
        'rank 1: Traceback (most recent call last):\n  File "/a/train.py", line 3, in train\nValueError: '
        "too much\na note"
    )
    hung = (
        'Where each rank was:\n  rank 0 (waited):\n    File "/a/c10d.py", line 9, in all_reduce\nrank 1 '
        "did not come"
    )
    failed = [{"key": "s.0", "error": raised}, {"key": "s.1", "error": hung}]
    assert (
        explain_failures(failed)
        == "2 trials failed: s.0: rank 1: ValueError: too much (train.py:3); s.1: rank 1 did not come"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
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
def test_numbers_are_shown_short(value: Any, expected: str) -> None:
    assert number(value) == expected


@pytest.mark.slow
def test_a_report_has_intervals_slices_baseline_calibration_serving_and_its_rows(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    metrics = ["roc_auc", "neg_log_loss", "accuracy"]
    slices = ["x > 0.25", "x"]
    predictor = "tests.predictors:probabilities"
    sweep = search_sweep(
        predictor=predictor,
        metrics=metrics,
        slices=slices,
        max_trials=1,
        dataset=MANY,
        serving={"seconds": 0.25},
    )
    report = evaluate_sweep(backend.store, backend.catalog, sweep)
    data = report.data
    assert list(data["metrics"]) == list(data["intervals"]) == metrics
    assert data["main_metric"] == "roc_auc"
    stored = predictions.read(backend.store, data["predictions"])
    assert stored.rows == data["snapshot"]["splits"]["test"]
    assert metric_on(stored, "neg_log_loss", np.arange(stored.rows)) == pytest.approx(
        data["metrics"]["neg_log_loss"]
    )
    assert data["baseline"]["metrics"]["roc_auc"] == 0.5
    assert data["calibration"]["error"] == pytest.approx(0.2)
    assert (data["slices"][0]["groups"][1]["name"], data["slices"][0]["error"]) == ("x > 0.25", None)
    assert "give a condition" in data["slices"][1]["error"]
    serving = data["serving"]
    assert 0 < serving["one_row"]["p50_ms"] <= serving["one_row"]["p99_ms"]
    assert serving["batch"]["rows"] == stored.rows
    assert serving["checkpoint_bytes"] > 0
    assert serving["peak_memory_bytes"] > 1e6
    assert data["looks"] == {"winners": 1, "looks": 1, "optimism": 0.0, "worn": False}
    page = backend.store.get_blob(report.html_digest).decode()
    for said in (
        "Calibration",
        "Cost of serving",
        "the most frequent class of the training split",
        "has judged 1 winner so far",
        "(worst)",
    ):
        assert said in page
    again = evaluate_sweep(backend.store, backend.catalog, sweep)
    assert (again.data["looks"]["winners"], again.data["looks"]["looks"]) == (1, 2)
    assert again.data["predictions"] == data["predictions"], "equal predictions are one blob"
    json.loads(backend.store.get_blob(again.digest))


@pytest.mark.slow
def test_an_evaluator_takes_the_predictors_place(backend: Backend, search_sweep: Callable[..., str]) -> None:
    fields = {
        "predictor": None,
        "evaluator": "tests.predictors:evaluate",
        "max_trials": 1,
        "slices": ["label"],
    }
    report, _ = evaluate(backend, search_sweep(**fields))
    data = report.data
    assert set(data["metrics"]) == {"margin", "loss", "rows_seen"}
    assert set(data["intervals"]) == {"margin", "loss"}
    assert data["higher_is_better"] == {"margin": True, "loss": False, "rows_seen": True}
    assert (data["baseline"], data["serving"], data["confusion"]) == (None, None, None)
    assert [group["name"] for group in data["slices"][0]["groups"]] == ["high", "low"]
    assert "Dark" in backend.store.get_blob(report.html_digest).decode()
    assert backend.store.has_blob(data["figures"][0]["digest"])
    promote_winner(backend, report)
    rival = evaluate_sweep(backend.store, backend.catalog, search_sweep(**fields, seed=1))
    assert rival.data["champion"]["metrics"]["loss"] == rival.data["metrics"]["loss"]
    assert predictions.read(backend.store, rival.data["champion"]["predictions"]).scores.keys() == {
        "margin",
        "loss",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("evaluator", "said"),
    [
        ("evaluate_too_few", r"evaluate_too_few returned 1 'loss' scores for \d+ rows; return one a row"),
        ("evaluate_as_a_dict", r"evaluate_as_a_dict returned a dict; return halving\.Evaluation"),
    ],
)
def test_an_evaluator_that_returns_something_else_is_named(
    backend: Backend, search_sweep: Callable[..., str], evaluator: str, said: str
) -> None:
    sweep = search_sweep(predictor=None, evaluator=f"tests.predictors:{evaluator}", max_trials=1)
    for looks in (1, 2):
        with pytest.raises(PredictionFailed, match=said):
            evaluate_sweep(backend.store, backend.catalog, sweep)
        with backend.catalog.read() as session:
            (look,) = session.scalars(select(SplitLookRow))
        assert (look.sweep, look.times) == (sweep, looks), "it has seen the rows"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metrics": ["r2"]}, "metrics.0 = 'r2' is not accepted for a target of type string"),
        ({"slices": ["y < 3"]}, "slices.0 = 'y < 3' is not accepted: the snapshot has no column 'y'"),
        (
            {"gates": [{"leakage": {"ignore": ["y"]}}]},
            "gates.0.leakage.ignore = 'y' is not accepted: the snapshot has no such column",
        ),
    ],
)
def test_metrics_and_slices_that_do_not_fit_a_snapshot_are_refused_before_a_sweep(
    backend: Backend, small_spec: Spec, changes: dict[str, Any], said: str
) -> None:
    spec = small_spec(**changes)
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    with pytest.raises(InvalidInput, match=said):
        check_evaluation(spec, Dataset(backend.store, snapshot.name, snapshot.digest).manifest)
