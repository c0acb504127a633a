"""A loaded model has read its state once: no call reads it again, and none changes it for the next."""

import io
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from halving import InvalidInput, load_model
from halving.checkpoints.serialization import pack
from halving.models.loaded_run import ExportedRun
from halving.models.manifest import Manifest
from halving.models.model import Model, WrongPrediction, trained_run
from halving.models.published import published_name
from halving.store.json_files import to_json
from halving.store.store import Store
from tests.sdk.models.manifests import ABOUT

STATE: dict[str, Any] = {
    "weights": {"a": torch.arange(3.0), "b": [1, [2, 3]], "c": (np.arange(2), {"d": 1})},
    "words": ["x", "y"],
    "threshold": 0.5,
}


def store_with_model(tmp_path: Path, **changes: Any) -> tuple[Store, Manifest]:
    """A store with a checkpoint, and a manifest of it that is the champion of the model m."""
    store = Store(tmp_path / "store")
    file = io.BytesIO()
    pack(STATE, file)
    checkpoint = store.put_blob(file.getvalue())
    manifest = Manifest(
        **{**ABOUT, "checkpoint": checkpoint, "dataset": "d", "snapshot": "sha256:" + "0" * 64, **changes}
    )
    version: dict[str, Any] = dict.fromkeys(
        ("model", "version", "stage", "framework", "description", "source"), "m"
    )
    version |= {"input_schema": {}, "output_schema": {}, "metrics": {}, "gates": [], "tags": {}}
    version |= {"checkpoint": checkpoint, "manifest": manifest.write(store)}
    store.replace(published_name("m", "champion"), to_json({"version": version}))
    return store, manifest


def test_state_is_read_once_and_what_a_predictor_changes_in_it_stays_its_own(tmp_path: Path) -> None:
    store, manifest = store_with_model(tmp_path)
    run = trained_run(store, manifest)
    shutil.rmtree(store.root)  # the store is away from now on
    for _ in range(2):
        state = run.restore(weights=None, words=None, threshold=None)
        assert torch.equal(state["weights"]["a"], torch.arange(3.0))
        assert (state["weights"]["b"], state["words"], state["threshold"]) == ([1, [2, 3]], ["x", "y"], 0.5)
        assert (state["weights"]["c"][0].tolist(), state["weights"]["c"][1]) == ([0, 1], {"d": 1})
        state["weights"]["a"].zero_()
        state["weights"]["b"][1].clear()
        state["weights"]["c"][0][:] = 7
        state["weights"]["c"][1].clear()
        state["words"].clear()


def test_a_module_is_filled_with_its_layers_versions(tmp_path: Path) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
    file = io.BytesIO()
    pack({"model": layers}, file)
    store = Store(tmp_path)
    run = trained_run(
        store,
        Manifest(
            **{**ABOUT, "checkpoint": store.put_blob(file.getvalue()), "snapshot": "sha256:" + "0" * 64}
        ),
    )
    empty = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
    assert run.restore(model=empty)["model"] is empty
    assert torch.equal(empty[0].weight, layers[0].weight)
    assert run.restore(model=None)["model"]._metadata == layers.state_dict()._metadata  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("predicted", "said"),
    [
        (
            None,
            (
                "returned a NoneType; return a list, an array or a dict of probabilities, with a value for "
                "each of the 2 rows"
            ),
        ),
        (iter([1, 2]), "returned a list_iterator; return a list"),
        ([1], "returned 1 predictions for 2 rows"),
        ({"a": [0.5], "b": [0.5]}, "returned 1 predictions for 2 rows"),
    ],
)
def test_what_is_no_prediction_for_each_row_is_an_error(predicted: Any, said: str) -> None:
    manifest = Manifest(**{**ABOUT, "input_schema": {"x": "double"}})
    model = Model(manifest, ExportedRun(params={}, checkpoint="", state={}), lambda run, table: predicted)
    with pytest.raises(WrongPrediction, match=said):
        model.predict({"x": [1.0, 2.0]})


def test_probabilities_by_class_are_predictions() -> None:
    manifest = Manifest(**{**ABOUT, "input_schema": {"x": "double"}})
    answers = {"a": [0.5, 1.0], "b": [0.5, 0.0]}
    model = Model(manifest, ExportedRun(params={}, checkpoint="", state={}), lambda run, table: answers)
    assert model.predict({"x": [1.0, 2.0]}) == answers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "raise RuntimeError('no license')",
            r"cannot be imported: RuntimeError at \w+\.py:1: no license; halving models export m@champion",
        ),
        (
            None,
            (
                "there is no module .*; halving models export m@champion FOLDER writes a folder with the "
                "code "
                "as it was"
            ),
        ),
        ("x = 1", "has no function 'predict'; it has .*; halving models export m@champion FOLDER"),
    ],
    ids=["raises", "gone", "without-the-function"],
)
def test_a_champion_whose_code_no_longer_imports_says_how_to_get_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, said: str
) -> None:
    module = f"served_{abs(hash(text))}"
    if text is not None:
        (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    store, _ = store_with_model(
        tmp_path, predictor=f"{module}:predict", code={f"{module}.py": "def predict(run, table): ..."}
    )
    with pytest.raises(InvalidInput, match=said):
        load_model("m@champion", root=store.root)


@pytest.mark.parametrize(
    ("exporter", "changed"), [({}, {}), ({"graph_of_it.py": "gone"}, {}), ({}, {"asks_beside.py": "x = 1"})]
)
def test_a_warning_says_where_the_predictors_code_changed_not_the_exporters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exporter: dict[str, str], changed: dict[str, str]
) -> None:
    code = {"asks_beside.py": "", "asks_m.py": "import asks_beside\ndef predict(run, table): return []\n"}
    for name, text in (code | changed).items():
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)  # the last test's
    monkeypatch.syspath_prepend(str(tmp_path))
    store_with_model(
        tmp_path, predictor="asks_m:predict", exporter="graph_of_it:export", code=code | exporter
    )
    with pytest.warns(UserWarning, match="asks_m:predict is not what it was") if changed else nullcontext():
        load_model("m@champion", root=tmp_path / "store")
