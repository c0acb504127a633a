"""A report compares the winner with the champion on the same rows, whatever the champion is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving import Dataset
from resources.backend import Backend
from resources.evaluation.report import (
    evaluate_sweep,
)
from resources.registry.gates.verdict import GateFailed
from resources.registry.promotion import promote_winner
from resources.registry.stages import archive
from resources.sweep_spec import SweepSpec
from tests.backends import add_version
from tests.resources.evaluation.reports import promote_winner_of

Spec = Callable[..., SweepSpec]
MANY = {"name": "many", "source": "tests.trainables:many", "target": "label"}


@pytest.mark.slow
def test_the_champions_own_sweep_judged_again_says_that_it_is_the_champion(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    sweep = search_sweep()
    promote_winner_of(backend, sweep)
    report = evaluate_sweep(backend.store, backend.catalog, sweep)
    assert report.data["is_champion"] == "1.0.0"
    page = backend.store.get_blob(report.html_digest).decode()
    assert "The champion 1.0.0 of <code>small</code> is of this sweep" in page
    assert "The champion 1.0.0 is of this sweep" in report.preview
    assert "There is no champion" not in page


@pytest.mark.slow
def test_a_report_compares_with_the_champion_on_the_same_rows(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    promote_winner_of(backend, search_sweep())
    report = evaluate_sweep(
        backend.store, backend.catalog, search_sweep(seed=1, predictor="tests.trainables:predict_badly")
    )
    champion = report.data["champion"]
    assert (champion["version"], champion["same_snapshot"], champion["metrics"]["accuracy"]) == (
        "1.0.0",
        True,
        1.0,
    )
    assert report.data["metrics"]["accuracy"] < 1
    page = backend.store.get_blob(report.html_digest).decode()
    assert "champion 1.0.0" in page
    assert "Champion 1.0.0 on the same split: accuracy 1.0000" in report.preview


@pytest.mark.slow
def test_a_champion_of_another_snapshot_sees_the_rows_with_its_own_dataset(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    promote_winner_of(backend, search_sweep(predictor="tests.predictors:knowing_its_own_dataset"))
    champion = evaluate_sweep(backend.store, backend.catalog, search_sweep(dataset=MANY)).data["champion"]
    assert (champion["same_snapshot"], champion["error"], champion["metrics"]["accuracy"]) == (
        False,
        None,
        1.0,
    )


@pytest.mark.slow
def test_no_winner_is_compared_with_a_clients_champion_until_that_is_archived(
    backend: Backend, search_sweep: Callable[..., str]
) -> None:
    with backend.catalog.write() as session:
        add_version(session, model="small", version="1.0.0", stage="champion", source="s3://bucket/net")
    report = evaluate_sweep(backend.store, backend.catalog, search_sweep())
    assert "a client registered it" in backend.store.get_blob(report.html_digest).decode()
    with pytest.raises(
        GateFailed,
        match=(
            r"champion small 1\.0\.0 could not be evaluated .*: a client registered it, .*halving archive "
            r"small 1"
        ),
    ):
        promote_winner(backend, report)
    archive(backend.catalog, "small", "1.0.0", actor="ann")
    row, _ = promote_winner(backend, report)
    assert (row.version, row.stage) == ("2.0.0", "champion")


@pytest.mark.slow
def test_a_champion_from_another_snapshot_is_said_to_be_so(
    backend: Backend, search_sweep: Callable[..., str], small: Callable[..., Any]
) -> None:
    promote_winner_of(backend, search_sweep())
    report = evaluate_sweep(
        backend.store, backend.catalog, search_sweep(dataset={**small()["dataset"], "seed": 5})
    )
    assert report.data["champion"]["same_snapshot"] is False
    assert "was trained on another snapshot" in backend.store.get_blob(report.html_digest).decode()


@pytest.mark.slow
def test_a_report_reads_the_test_split_once_for_the_winner_and_the_champion(
    backend: Backend, search_sweep: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    promote_winner_of(backend, search_sweep(max_trials=1))
    sweep = search_sweep(max_trials=1, seed=1)
    batches = Dataset.batches
    splits = []
    monkeypatch.setattr(
        Dataset, "batches", lambda dataset, split: splits.append(split) or batches(dataset, split)
    )
    monkeypatch.delattr(Dataset, "read")
    assert evaluate_sweep(backend.store, backend.catalog, sweep).data["champion"]["metrics"]
    assert splits == ["test"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import a_package_that_is_gone", "there is no module 'a_package_that_is_gone'"),
        (
            "import time\ndef predict(run, table):\n    time.sleep(600)",
            (
                "predictor moved_since:predict was ended after 15 seconds without an answer, the limit "
                "evaluation_limits.seconds"
            ),
        ),
    ],
)
def test_a_champions_failing_predictor_is_reported_and_the_winner_still_judged(
    backend: Backend,
    search_sweep: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    said: str,
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "moved_since.py"
    module.write_text("from tests.trainables import predict")
    promote_winner_of(
        backend,
        search_sweep(max_trials=1, predictor="moved_since:predict", evaluation_limits={"seconds": 15}),
    )
    module.write_text(code)
    report = evaluate_sweep(backend.store, backend.catalog, search_sweep(max_trials=1, seed=1))
    assert said in report.data["champion"]["error"]
    assert report.data["metrics"]["accuracy"] == 1.0
