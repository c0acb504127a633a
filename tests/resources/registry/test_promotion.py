"""A winner is judged against the champion at its registration, whatever was promoted since its report."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

import halving
from halving import InvalidInput, load_model
from halving.models.source_code import Code
from resources.backend import Backend
from resources.catalog import ModelVersionRow
from resources.catalog.models import champion_of, versions_of
from resources.catalog.tables import ReportRow
from resources.evaluation.report import EvaluationReport, load_report
from resources.registry import by_hand, promotion
from resources.registry.gates.verdict import GateFailed
from resources.registry.promotion import judge_again, promote_winner
from resources.registry.publishing import publish
from resources.registry.stages import archive, promote
from resources.registry.verdicts import PromotionRefused
from tests import trainables
from tests.resources.registry.small_sweeps import BAD, GOOD


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


def champion(backend: Backend) -> tuple[str, float]:
    with backend.catalog.read() as session:
        row = champion_of(session, "small")
        assert row is not None
        return row.sweep, row.metrics["accuracy"]


@pytest.mark.slow
def test_a_winner_of_a_project_with_another_name_is_promoted_and_loaded(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    report = evaluate_sweep(GOOD, project="vision")
    promote_winner(backend, report)
    with backend.catalog.read() as session:
        row = champion_of(session, "small")
        assert row is not None
        assert (row.project, row.run) == ("vision", report.data["winner"]["key"])
    publish(backend.store, backend.catalog)
    assert backend.store.names("runs") == ["project=vision"]
    assert load_model("small@champion", root=backend.store.root).manifest.run == report.data["winner"]["key"]


@pytest.mark.slow
@pytest.mark.parametrize("has_champion", [False, True], ids=["without-a-champion", "with-an-old-champion"])
def test_a_worse_winner_does_not_replace_a_champion_promoted_since_its_report(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport], has_champion: bool
) -> None:
    if has_champion:
        promote_winner(backend, evaluate_sweep(BAD, seed=9))
    worse = evaluate_sweep(BAD)
    better = evaluate_sweep(GOOD, seed=1)
    promote_winner(backend, better)
    version = "1.0.1" if has_champion else "1.0.0"
    reason = rf"non_inferior: accuracy 0\.\d+ against 1\.0000 of the champion small {version}"
    with pytest.raises(GateFailed, match=reason):
        promote_winner(backend, worse)
    assert champion(backend) == (better.data["sweep"], 1.0)
    with backend.catalog.read() as session:
        assert worse.data["sweep"] not in {row.sweep for row in versions_of(session, "small")}
        assert backend.catalog.sweep(session, worse.data["sweep"]).status == "rejected"
    assert (
        load_report(backend.store, backend.catalog, worse.data["sweep"]).data["champion"]["version"]
        == version
    )


@pytest.mark.slow
def test_winners_promoted_at_the_same_moment_leave_the_better_one_as_champion(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = [evaluate_sweep(BAD), evaluate_sweep(GOOD, seed=1)]
    both = Barrier(2)
    register = promotion.register
    entered = set[str]()

    def at_once(catalog: Any, new: Any, **options: Any) -> Any:
        if new.sweep not in entered:
            entered.add(new.sweep)
            both.wait()
        return register(catalog, new, **options)

    monkeypatch.setattr(promotion, "register", at_once)
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(promote_winner, backend, report) for report in reports]
    assert ended[1].exception() is None
    assert isinstance(ended[0].exception(), GateFailed | None)
    assert champion(backend) == (reports[1].data["sweep"], 1.0)


@pytest.mark.slow
def test_a_winner_judged_against_a_champion_that_was_archived_becomes_the_champion(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    promote_winner(backend, evaluate_sweep(GOOD))
    report = evaluate_sweep(GOOD, seed=1)
    archive(backend.catalog, "small", "1.0.0", actor="ann")
    row, made_again = promote_winner(backend, report)
    assert (row.stage, row.report) == ("champion", made_again.digest)
    assert (report.data["champion"]["version"], made_again.data["champion"]) == ("1.0.0", None)


@pytest.mark.slow
def test_a_winner_rejected_for_a_champion_archived_since_becomes_the_champion(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    promote_winner(backend, evaluate_sweep(GOOD))
    report = evaluate_sweep(BAD, passes=False, seed=1)
    with pytest.raises(GateFailed, match="non_inferior"):
        promote_winner(backend, report)
    archive(backend.catalog, "small", "1.0.0", actor="ann")
    row, _ = promote_winner(backend, report)
    assert (row.stage, row.sweep) == ("champion", report.data["sweep"])
    assert promote_winner(backend, report)[0].version == row.version, "and the same report finds it again"


@pytest.mark.slow
def test_an_old_report_without_verdicts_or_code_is_made_again_without_its_old_spec(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    """Its spec's gates were one object."""
    new_report = evaluate_sweep(GOOD)
    old = {
        **new_report.data,
        "spec": {**new_report.data["spec"], "gates": {"metric": "accuracy", "margin": 0.0}},
    }
    del old["gates"], old["code"]
    digest = backend.store.put_blob(json.dumps(old).encode())
    row, report = promote_winner(
        backend, EvaluationReport(old, digest, new_report.html_digest, new_report.path)
    )
    assert (row.stage, row.report) == ("champion", report.digest)
    assert [gate["name"] for gate in row.gates or []][:2] == ["finite_metrics", "lineage"]

    held = evaluate_sweep(BAD, passes=False, seed=1).data["sweep"]
    with backend.catalog.write() as session:
        without_code = {**old, "sweep": held, "gates": new_report.data["gates"]}
        session.get_one(ReportRow, held).digest = backend.store.put_blob(json.dumps(without_code).encode())
    forced = by_hand.promote(
        backend, "small", held, pytest.fail, actor="ann", note="the other leaks", force=True
    ).row
    assert (forced.stage, forced.sweep) == ("champion", held)
    assert not all(gate["passed"] for gate in forced.gates or [])


def test_an_evaluators_report_from_before_reports_had_code_is_not_made_again(tmp_path: Path) -> None:
    backend = Backend(root=str(tmp_path / "store"), catalog_url=f"sqlite:///{tmp_path}/never-asked.db")
    spec = {"evaluator": "tests.predictors:evaluate"}
    sweep = "small-that-could-not-be-judged-again"
    report = EvaluationReport(
        {"spec": spec, "sweep": sweep, "gates": []}, "sha256:data", "sha256:page", "page.html"
    )
    assert promotion._complete_report(backend, report) is report


@pytest.mark.slow
def test_a_winner_is_not_promoted_over_a_champion_whose_code_no_longer_imports(
    backend: Backend,
    evaluate_sweep: Callable[..., EvaluationReport],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "gone_since.py"
    module.write_text("from tests.trainables import predict")
    promote_winner(backend, evaluate_sweep("gone_since:predict"))
    module.write_text("import a_package_that_is_gone")
    report = evaluate_sweep(GOOD, passes=False, seed=1)
    with pytest.raises(GateFailed, match="there is no module 'a_package_that_is_gone'"):
        promote_winner(backend, report)
    assert champion(backend)[0] != report.data["sweep"]


@pytest.mark.slow
def test_a_promotion_whose_catalog_fails_after_the_manifest_succeeds_at_the_next_try(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = evaluate_sweep(GOOD)
    with monkeypatch.context() as away:
        away.setattr(
            promotion,
            "register",
            lambda *_, **__: (_ for _ in ()).throw(OperationalError("INSERT", {}, Exception("gone"))),
        )
        with pytest.raises(OperationalError):
            promote_winner(backend, report)
    with backend.catalog.read() as session:
        assert versions_of(session, "small") == []
    assert promote_winner(backend, report)[0].stage == "champion"
    assert publish(backend.store, backend.catalog) == []
    assert halving.resolve("small@champion", root=backend.store.root).version == "1.0.0"


@pytest.mark.slow
def test_a_promoted_version_is_loaded_from_the_store_with_the_code_that_judged_it(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = evaluate_sweep(GOOD)
    with monkeypatch.context() as changed:
        changed.setattr(
            "resources.evaluation.judged_code.code_of",
            lambda *functions: Code({"tests/trainables.py": "other"}, {}),
        )
        row, report = promote_winner(backend, report)
    assert (row.judged_against, {gate["passed"] for gate in row.gates or []}) == (None, {True})
    monkeypatch.setattr(type(backend.catalog), "read", lambda self: pytest.fail("the catalog is away"))
    model = load_model("small@champion", root=backend.store.root)
    assert list(model.predict({"x": [0.1, 0.9]})) == ["low", "high"]
    assert (model.manifest.report, model.manifest.predictor) == (report.digest, GOOD)
    assert model.manifest.code["tests/trainables.py"] == Path(trainables.__file__).read_text()
    monkeypatch.setattr(
        "halving.models.model.code_of", lambda *functions: Code({"tests/trainables.py": "other"}, {})
    )
    with pytest.warns(UserWarning, match="is not what it was when small@champion was judged"):
        load_model("small@champion", root=backend.store.root)


@pytest.mark.slow
def test_a_version_is_judged_again_against_the_champion_of_now(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    promote_winner(backend, evaluate_sweep(BAD))
    waiting, _ = promote_winner(backend, evaluate_sweep(BAD, seed=2, auto_promote=False))
    promote_winner(backend, evaluate_sweep(GOOD, seed=1))
    with pytest.raises(
        PromotionRefused, match=r"judged against champion 1\.0\.0, and the champion is 1\.0\.2 now"
    ):
        promote(backend.catalog, "small", waiting.version, actor="ann")
    row, report = judge_again(backend, "small", waiting.version, actor="ann")
    assert (row.judged_against, row.report) == ("1.0.2", report.digest)
    with pytest.raises(PromotionRefused, match="gate non_inferior did not pass: accuracy"):
        promote(backend.catalog, "small", waiting.version, actor="ann")
    with pytest.raises(InvalidInput, match="is not judged again: it is the champion"):
        judge_again(backend, "small", "1.0.2", actor="ann")


@pytest.mark.slow
def test_a_champion_from_before_manifests_were_kept_gets_one_by_which_it_is_loaded(
    backend: Backend, evaluate_sweep: Callable[..., EvaluationReport]
) -> None:
    champion, _ = promote_winner(backend, evaluate_sweep(GOOD))
    with backend.catalog.write() as session:
        session.get_one(ModelVersionRow, ("small", "1.0.0")).manifest = None
    row, _ = judge_again(backend, "small", "1.0.0", actor="ann")
    assert (row.manifest is not None, row.stage, row.report, row.gates) == (
        True,
        "champion",
        champion.report,
        champion.gates,
    )
    assert publish(backend.store, backend.catalog) == []
    assert list(load_model("small@champion", root=backend.store.root).predict({"x": [0.1]})) == ["low"]
    with pytest.raises(InvalidInput, match="is not judged again: it is the champion"):
        judge_again(backend, "small", "1.0.0", actor="ann")
