"""Models as folders and models in a process: whole or not at all, and never of foreign bytes."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halving import AlreadyExists, InvalidInput, StoreError, load_model
from halving.models.export import ExportDiffers, export_model
from halving.models.manifest import Manifest
from halving.models.model import Model, WrongPrediction, load_exported, trained_run
from halving.models.onnx_model import OnnxDiffers
from halving.store.store import blob_name
from halving.trial.import_string import import_function
from resources.backend import Backend
from tests import served_models
from tests.resources.registry.manifests import GONE, GONE_CODE, JUDGED, SCALE_TEXT


def model_of(backend: Backend, manifest: Manifest) -> Model:
    return Model(
        manifest, trained_run(backend.store, manifest), import_function("predictor", manifest.answered_by)
    )


@pytest.mark.slow
def test_an_exported_folder_answers_as_the_version_and_says_what_it_is(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    manifest = make_manifest()
    gates = [{"name": "finite_metrics", "passed": True, "reason": "all | finite"}]
    folder = export_model(backend.store, manifest, tmp_path / "out", name="points 1.0.0", gates=gates)
    assert {path.name for path in folder.iterdir()} == {
        *(
            "MLmodel",
            "README.md",
            "code",
            "input_example.json",
            "model.json",
            "predictions.json",
            "python_env.yaml",
            "requirements.txt",
        ),
        "state.json",
    }
    assert load_model(folder).predict({"x": [0.1, 0.9]}) == ["low", "high"]
    card = (folder / "README.md").read_text()
    for said in (
        "# points 1.0.0",
        "| accuracy | 1.0000 |",
        r"| finite_metrics | pass | all \| finite |",
        "| x | double | no |",
        "s-1.0000",
    ):
        assert said in card
    assert "pyarrow==26.0.1" in (folder / "requirements.txt").read_text()
    assert (folder / "code/tests/served_models.py").read_text() == Path(served_models.__file__).read_text()
    with pytest.raises(AlreadyExists, match="there is something in it"):
        export_model(backend.store, manifest, folder)
    assert list(tmp_path.glob(".*export*")) == []


@pytest.mark.slow
def test_an_exported_folder_needs_nothing_but_its_own_code(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    folder = export_model(backend.store, make_manifest(), tmp_path / "out")
    shutil.rmtree(backend.store.root)
    program = (
        "import json, sys, pandas, mlflow.pyfunc\n"
        f"model = mlflow.pyfunc.load_model({str(folder)!r})\n"
        f"example = pandas.DataFrame(json.load(open({str(folder / 'input_example.json')!r})))\n"
        "import halving, tests.served_models\n"
        "print(json.dumps([model.predict(example), halving.__file__, tests.served_models.__file__]))\n"
    )
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HALVING_ROOT")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    predicted, *files = json.loads(done.stdout.splitlines()[-1])
    assert predicted == json.loads((folder / "predictions.json").read_text())
    assert all(str(folder / "code") in file for file in files)


@pytest.mark.slow
def test_arrays_are_safetensors_and_a_graph_is_checked_against_the_predictor(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    manifest = make_manifest("predict_numbers", "export_numbers", source="numbers", slope=np.array([2.0]))
    folder = export_model(backend.store, manifest, tmp_path / "out")
    assert {"weights.safetensors", "model.onnx"} <= {path.name for path in folder.iterdir()}
    assert load_model(folder).predict({"x": [0.5]}) == [2.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exporter", "error", "said"),
    [
        ("export_wrongly", OnnxDiffers, r"export_wrongly answers .* where the predictor answers"),
        ("export_nothing", InvalidInput, "returned str: return an onnx.ModelProto, or its bytes"),
        ("export_raising", InvalidInput, "raised KeyError at served_models.py:"),
    ],
)
def test_a_graph_that_is_not_the_model_is_not_exported(
    backend: Backend,
    make_manifest: Callable[..., Manifest],
    tmp_path: Path,
    exporter: str,
    error: type[Exception],
    said: str,
) -> None:
    manifest = make_manifest("predict_numbers", exporter, source="numbers", slope=np.array([2.0]))
    with pytest.raises(error, match=said):
        export_model(backend.store, manifest, tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []
    assert list(tmp_path.glob(".out*")) == []


def test_a_version_without_a_predictor_says_that_it_answers_no_tables(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="answers no tables: the spec of its sweep has no predictor"):
        export_model(backend.store, replace(make_manifest(), predictor=None), tmp_path / "out")
    assert list(tmp_path.glob(".out*")) == []


@pytest.mark.slow
def test_a_predictor_that_needs_its_data_is_told_that_an_export_has_none(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=r"run\.dataset is not there in an exported model"):
        export_model(backend.store, make_manifest("predict_by_its_data"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.folder
@pytest.mark.parametrize("of", ["checkpoint", "report"])
def test_what_has_a_wrong_digest_is_refused(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path, of: str
) -> None:
    manifest = make_manifest()
    assert backend.store.folder is not None
    file = backend.store.folder / blob_name(getattr(manifest, of))
    file.chmod(0o644)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreError, match="is damaged: its content hashes to"):
        export_model(backend.store, manifest, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    if of == "checkpoint":
        with pytest.raises(StoreError, match="is damaged"):
            model_of(backend, manifest)


def test_an_export_that_differs_from_what_was_judged_is_none(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halving.models.export.read_state", lambda folder: {"threshold": 2.0})
    with pytest.raises(ExportDiffers, match="has another state than the checkpoint"):
        export_model(backend.store, make_manifest(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_model_whose_code_is_gone_here_is_exported_with_the_code_of_its_manifest(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    folder = export_model(
        backend.store, replace(make_manifest(), predictor=GONE, code=GONE_CODE), tmp_path / "out"
    )
    example = json.loads((folder / "input_example.json").read_text())
    assert json.loads((folder / "predictions.json").read_text()) == [
        JUDGED["predict"](x) for x in example["x"]
    ]
    card = (folder / "README.md").read_text()
    assert re.search(r"it answers [1-9]\d* rows of the test split as it did when it was judged", card)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (
            {"scale.py": "def high(x, threshold):\n    return x < threshold\n"},
            ExportDiffers,
            "of row 0 is '.*', where '.*' was judged",
        ),
        (
            {"scale.py": None},
            InvalidInput,
            r"does not answer on its own: .* there is no module 'gone_elsewhere\.scale'",
        ),
        ({"scale.py": "import tests.trainables\n" + SCALE_TEXT}, InvalidInput, "there is no module 'tests'"),
        (
            {"scale.py": "raise RuntimeError('no license')\n"},
            InvalidInput,
            r"cannot be imported: RuntimeError at scale\.py:1: no license",
        ),
        (
            {"model.py": "def predict(run, table):\n    raise KeyError('x')\n"},
            InvalidInput,
            r"raised KeyError at model\.py:2: 'x'",
        ),
        ({"model.py": "import os\nos.abort()\n"}, InvalidInput, "ended without an answer, killed by SIGABRT"),
        (
            {"model.py": "def predict(run, table):\n    return None\n"},
            WrongPrediction,
            "returned a NoneType; return a list",
        ),
    ],
    ids=[
        "answers-differ",
        "module-missing",
        "only-in-the-checkout",
        "import-raises",
        "predict-raises",
        "dies",
        "none",
    ],
)
def test_a_folder_that_does_not_answer_on_its_own_as_it_was_judged_is_not_exported(
    backend: Backend,
    make_manifest: Callable[..., Manifest],
    tmp_path: Path,
    change: dict[str, str | None],
    error: type[Exception],
    said: str,
) -> None:
    code = {**GONE_CODE, **{f"gone_elsewhere/{name}": text for name, text in change.items()}}
    manifest = replace(
        make_manifest(), predictor=GONE, code={path: text for path, text in code.items() if text is not None}
    )
    with pytest.raises(error, match=said):
        export_model(backend.store, manifest, tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []


@pytest.mark.slow
def test_what_was_not_compared_is_said(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    manifest = replace(make_manifest(), report=backend.store.put_blob(json.dumps({"metrics": {}}).encode()))
    with pytest.warns(
        UserWarning,
        match="points.* were not compared with those that were judged: its report has no predictions by row",
    ):
        folder = export_model(backend.store, manifest, tmp_path / "out")
    assert (
        "were not compared with those that were judged: its report has no predictions"
        in (folder / "README.md").read_text()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("state.json", "0.5"),
        ("code/tests/served_models.py", "high"),
        ("code/halving/errors.py", "Every"),
        ("code/new.py", None),
    ],
)
def test_a_folder_that_was_changed_is_not_loaded(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path, file: str, change: str | None
) -> None:
    folder = export_model(backend.store, make_manifest(), tmp_path / "out")
    changed = folder / file
    changed.write_text(changed.read_text().replace(change, "0.7") if change else "")
    with pytest.raises(StoreError, match=f"is damaged: {file} (hashes to|was not exported)"):
        load_model(folder)


def test_a_wrong_number_of_predictions_is_an_error(
    backend: Backend, make_manifest: Callable[..., Manifest]
) -> None:
    with pytest.raises(WrongPrediction, match="returned 1 predictions for 2 rows"):
        model_of(backend, make_manifest("predict_too_few")).predict({"x": [0.1, 0.2]})


@pytest.mark.slow
def test_other_code_of_the_same_name_is_not_taken_for_that_of_a_folder(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    folder = export_model(backend.store, make_manifest(), tmp_path / "out")
    about = json.loads((folder / "model.json").read_text())
    about["code"]["tests/served_models.py"] += "# and more\n"
    (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(
        InvalidInput, match=r"tests\.served_models was imported from .* before, which is other code"
    ):
        load_exported(folder)
