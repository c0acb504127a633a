"""Gates hold winners back: evidence, lineage, leaks, tests of the exported model, and altered reports."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, NotFound, StoreError
from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog.models import versions_of
from resources.evaluation.report import EvaluationReport, load_report
from resources.registry import by_hand
from resources.registry.events import events_of
from resources.registry.gates.verdict import GateFailed, TooLittleEvidence
from resources.registry.promotion import promote_winner
from tests.resources.registry.small_sweeps import BAD, GOOD


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


@pytest.mark.slow
def test_too_little_evidence_holds_a_winner_back_and_its_report_says_the_rows_needed(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    promote_winner(backend, evaluate_sweep(GOOD))
    gates = ["finite_metrics", {"non_inferior": {"margin_percent": 0.5}}]
    report = evaluate_sweep(GOOD, passes=False, seed=1, gates=gates)
    with backend.catalog.read() as session:
        assert backend.catalog.sweep(session, report.data["sweep"]).status == "held"
    with pytest.raises(
        TooLittleEvidence,
        match=r"is held back, because there is too little evidence: non_inferior: .* would settle it",
    ):
        promote_winner(backend, report)
    page = backend.store.get_blob(report.html_digest).decode()
    assert "Promotion is held back: too little evidence for non inferior." in page
    assert "Promotion is held back" in report.preview
    with backend.catalog.read() as session:
        assert len(versions_of(session, "small")) == 1
        assert backend.catalog.sweep(session, report.data["sweep"]).status == "held"


@pytest.mark.slow
def test_metrics_that_are_not_finite_and_a_missing_lineage_are_gates_of_every_spec(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    for number, gates in enumerate(([], [{"bounds": {"metric": "accuracy", "min": 0.1}}])):
        report = evaluate_sweep(GOOD, seed=number, gates=gates)
        assert [gate["name"] for gate in report.data["gates"]][:2] == ["finite_metrics", "lineage"]


@pytest.mark.slow
def test_a_report_that_was_altered_by_hand_promotes_nothing(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    promote_winner(backend, evaluate_sweep(GOOD))
    report = evaluate_sweep(BAD, passes=False, seed=1)
    path = Path(backend.store.path(blob_name(report.digest)))
    path.chmod(0o644)
    path.write_text(path.read_text().replace('"outcome": "fail"', '"outcome": "pass"'))
    with pytest.raises(StoreError, match="hash"):
        promote_winner(backend, load_report(backend.store, backend.catalog, report.data["sweep"]))
    with backend.catalog.read() as session:
        assert [row.version for row in versions_of(session, "small")] == ["1.0.0"]


@pytest.mark.slow
def test_test_rows_that_were_trained_on_block_the_promotion(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    dataset = {"name": "leaky", "source": "tests.trainables:leaky", "target": "label", "split_column": "part"}
    dataset["checks"] = {"leaked_rows": "warn"}
    report = evaluate_sweep(GOOD, passes=False, dataset=dataset, gates=[{"leakage": {"accept": ["x"]}}])
    with pytest.raises(
        GateFailed,
        match="leakage: 3 of the 30 rows of the test split have the features of a row of another split",
    ):
        promote_winner(backend, report)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "leakage: paid .*predict the target by themselves"),
        ({"group": ["customer"]}, "leakage: 30 values of customer are in two splits or more"),
    ],
)
def test_a_leak_that_was_planted_blocks_the_promotion(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport], settings: dict[str, Any], said: str
) -> None:
    dataset = {
        "name": "planted",
        "source": "tests.resources.registry.small_sweeps:planted_table",
        "target": "label",
        "split_column": "part",
    }
    report = evaluate_sweep(GOOD, passes=False, dataset=dataset | settings, gates=["leakage"])
    with pytest.raises(GateFailed, match=said):
        promote_winner(backend, report)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "limits", "said"),
    [
        ("passing", {}, None),
        ("looking_around", {}, None),
        (
            "failing",
            {},
            r"failing failed, exit code 1: AssertionError at candidate_tests\.py:\d+: it says 'low' of 1.0",
        ),
        (
            "hanging",
            {"seconds": 3},
            r"hanging failed, ended after 3 seconds, the limit integration_tests\.seconds",
        ),
        (
            "filling",
            {"memory": "400Mi"},
            (
                r"filling failed, ended with \d+Mi of memory, more than the limit of 400Mi "
                r"\(integration_tests\.memory = 400Mi\)"
            ),
        ),
        ("dying", {}, "dying failed, killed by SIGKILL"),
    ],
)
def test_tests_of_the_exported_winner_run_in_their_own_process_and_block_promotion(
    backend: Backend,
    evaluate_sweep: Callable[..., EvaluationReport],
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    limits: dict[str, Any],
    said: str | None,
) -> None:
    for name in ("HALVING_ROOT", "HALVING_CATALOG", "PGPASSWORD", "DAGSTER_PG_PASSWORD"):
        monkeypatch.setenv(name, "of the deployment")
    gate = {"integration_tests": {"function": f"tests.candidate_tests:{function}", **limits}}
    report = evaluate_sweep(GOOD, passes=said is None, gates=[gate])
    if said is None:
        assert promote_winner(backend, report)[0].stage == "champion"
    else:
        with pytest.raises(GateFailed, match=said):
            promote_winner(backend, report)


@pytest.mark.slow
def test_a_winner_that_its_gates_hold_back_is_promoted_by_force_with_their_verdicts(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    promote_winner(backend, evaluate_sweep(GOOD))
    held = evaluate_sweep(BAD, passes=False, seed=1).data["sweep"]
    with pytest.raises(InvalidInput, match="not forced without a note"):
        by_hand.promote(backend, "small", held, pytest.fail, actor="ann", force=True)
    with pytest.raises(NotFound, match=f"no version '{held}'"):
        by_hand.promote(backend, "small", held, pytest.fail, actor="ann")
    with pytest.raises(InvalidInput, match="would be a version of model 'small', not of 'large'"):
        by_hand.promote(backend, "large", held, pytest.fail, actor="ann", note="now", force=True)
    row = by_hand.promote(
        backend, "small", held, pytest.fail, actor="ann", note="the other leaks", force=True
    ).row
    assert (row.version, row.stage, row.judged_against) == ("1.0.1", "champion", "1.0.0")
    assert not all(gate["passed"] for gate in row.gates or [])
    with backend.catalog.read() as session:
        events = [(event.kind, event.note) for event in events_of(session, "small") if event.actor == "ann"]
    assert events == [
        ("registered", "the other leaks"),
        ("replaced", "by 1.0.1"),
        ("forced", "the other leaks"),
    ]


@pytest.mark.slow
@pytest.mark.folder
def test_a_report_that_was_altered_by_hand_blocks_the_promotion(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    report = evaluate_sweep(GOOD)
    assert backend.store.folder is not None
    file = backend.store.folder / blob_name(report.digest)
    file.chmod(0o644)
    file.write_bytes(file.read_bytes().replace(b'"accuracy": 1.0', b'"accuracy": 2.0'))
    with pytest.raises(StoreError, match="is damaged: its content hashes to"):
        promote_winner(backend, load_report(backend.store, backend.catalog, report.data["sweep"]))
    with backend.catalog.read() as session:
        assert versions_of(session, "small") == []
