"""What a version is made of is the code that judged it, and of no other code it is said that it did."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from halving import Store
from resources.evaluation.judged_code import code_here, code_of_report, keep_code
from resources.evaluation.predictor_calls import PredictionFailed
from resources.sweep_spec import SweepSpec

PREDICTOR = "from judged_beside import scale\n\n\ndef predict(run, table):\n    return scale(table)\n"
EXPORTER = "import yaml\n\n\ndef export(run):\n    return yaml.dump({})\n"
CHANGED = (
    r"its code changed since this process began to judge by it \(judged_beside\.py\), so what judged the "
    r"winner is not known"
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def spec(tmp_path: Path, small_spec: Callable[..., SweepSpec], monkeypatch: pytest.MonkeyPatch) -> SweepSpec:
    """Its predictor and its exporter are in modules of their own."""
    for name, text in (
        ("judged_model", PREDICTOR),
        ("judged_beside", "scale = len\n"),
        ("judged_graph", EXPORTER),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)  # the last test's
    monkeypatch.syspath_prepend(str(tmp_path))
    return small_spec(predictor="judged_model:predict", exporter="judged_graph:export")


def test_a_report_names_the_code_of_predictor_and_exporter_with_package_versions(
    spec: SweepSpec, store: Store
) -> None:
    began_with = code_here(spec)
    kept = code_of_report(store, {"code": keep_code(store, spec, began_with)})
    assert kept is not None
    assert kept == began_with
    assert kept.files == {
        "judged_beside.py": "scale = len\n",
        "judged_graph.py": EXPORTER,
        "judged_model.py": PREDICTOR,
    }
    assert kept.packages["PyYAML"] is not None
    assert code_of_report(store, {}) is None


def test_code_that_changes_while_it_judges_is_refused_by_its_name(
    spec: SweepSpec, store: Store, tmp_path: Path
) -> None:
    began_with = code_here(spec)
    (tmp_path / "judged_beside.py").write_text("scale = list\n")
    with pytest.raises(PredictionFailed, match=CHANGED):
        keep_code(store, spec, began_with)


def test_code_that_changes_between_two_evaluations_of_a_process_is_refused(
    spec: SweepSpec, store: Store, tmp_path: Path
) -> None:
    keep_code(store, spec, code_here(spec))
    (tmp_path / "judged_beside.py").write_text("scale = list\n")
    with pytest.raises(PredictionFailed, match=CHANGED):
        keep_code(store, spec, code_here(spec))


def test_a_spec_with_an_evaluator_has_no_code_that_could_answer(
    small_spec: Callable[..., SweepSpec], store: Store
) -> None:
    spec = small_spec(predictor=None, evaluator="tests.predictors:evaluate", gates=["finite_metrics"])
    assert keep_code(store, spec, code_here(spec)) is None
