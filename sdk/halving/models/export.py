"""Exports a model as a folder that stands alone, without a store or a catalog.

It needs only the packages that it lists. Its files are::

    README.md              the model card
    model.json             the manifest: params, schemas, metrics, digests, where it comes from
    weights.safetensors    the checkpoint's tensors; state.json has the rest of it
    code/                  the predictor's own modules, and the SDK that they import
    requirements.txt       what else they import, pinned
    input_example.json     rows of the test split, as columns; predictions.json has what the predictor answers
    MLmodel                for mlflow.pyfunc.load_model; python_env.yaml is its environment
    model.onnx             where the spec names an exporter
"""

import json
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import halving
from halving.checkpoints.restoring import saved_state
from halving.data.dataset import Dataset
from halving.data.verified_shards import whole_shard
from halving.errors import AlreadyExists, HalvingError, StoreError
from halving.machine.temporary_folders import temporary_folder
from halving.models.card import model_card
from halving.models.example import as_json
from halving.models.exported import CODE, ONNX, write_manifest
from halving.models.judged import difference, judged_answers
from halving.models.manifest import Manifest
from halving.models.mlmodel import write_mlmodel
from halving.models.model import manifest_of
from halving.models.published import find
from halving.models.source_code import warn_of_secrets
from halving.models.trying import try_folder
from halving.models.weights import read_state, same_state, write_state
from halving.store.json_files import to_json
from halving.store.local_files import sync_folder
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

TRIED_ROWS = 200
EXAMPLE_ROWS = 5
INPUTS = "input_example.json"
PREDICTIONS = "predictions.json"
_TEST_SPLIT = "test"


class ExportDiffers(HalvingError, RuntimeError):
    """The exported model does not answer as the one that was judged; nothing was exported."""


def export_model(
    store: Store,
    manifest: Manifest,
    folder: str | Path,
    *,
    name: str | None = None,
    gates: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write a model as a folder that appears when it is complete; if this is killed, there is none.

    The folder is tried before, in a process that has nothing but its code and the installed packages. Its
    answers to some hundred rows of the test split must be those that were judged. Nothing of the model is
    imported in this process, and it need not be importable any more. A warning, and the card, say where the
    report has no answers to compare with.

    Args:
        store: the store with the checkpoint, the snapshot and the report.
        manifest: of a version (:func:`halving.models.model.manifest_of`), or of a candidate that has no
            version yet.
        folder: must not exist, or be empty.
        name: of the version in the card, such as ``digits 1.0.0``.
        gates: the verdicts in the card: ``name``, ``passed`` and ``reason``.

    Raises:
        AlreadyExists: there is something at ``folder``.
        ExportDiffers: the folder's model answers something else than what was judged, or its weights are
            others.
        ExtraMissing: a package that is needed for it is not installed.
        InvalidInput: the folder's model cannot be loaded on its own, or the state has what safetensors does
            not take.
        OnnxDiffers: the graph answers something else than the folder's model.
        StoreError: the bytes of the checkpoint or the report do not hash to their digest, or the folder
            cannot be written.
    """
    target = Path(folder).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise AlreadyExists(
            f"folder {str(folder)!r} is not accepted: there is something in it; give one that does not "
            "exist yet"
        )
    manifest.answered_by  # noqa: B018  # refused before anything is written
    warn_of_secrets(manifest.model, manifest.code, stacklevel=2)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(target.parent) as temporary:
            whole = temporary / "model"
            work = temporary / "work"
            whole.mkdir()
            work.mkdir()
            _write(store, manifest, whole, work, name or f"{manifest.model} (a candidate)", gates)
            _sync(whole)
            os.replace(whole, target)
            sync_folder(target.parent)
    except StoreError:
        raise
    except OSError as error:
        if isinstance(error, HalvingError):
            raise
        raise StoreError(f"cannot export to {folder}: {error}") from None
    return target


def export_version(store: Store, reference: str, folder: str | Path) -> Path:
    """Export ``MODEL@champion``, ``MODEL@1.0.0`` or ``MODEL@ALIAS``; see :func:`export_model`.

    Raises:
        NotFound: there is no such version.
    """
    version = find(store, reference)
    name = f"{version.model} {version.version}"
    return export_model(store, manifest_of(store, version), folder, name=name, gates=version.gates)


def _write(
    store: Store, manifest: Manifest, folder: Path, work: Path, name: str, gates: Sequence[Mapping[str, Any]]
) -> None:
    report = json.loads(store.get_blob(manifest.report))
    _write_state(store, manifest, folder, name)
    _write_code(manifest, folder / CODE)
    write_manifest(folder, asdict(manifest))
    requirements = sorted({*manifest.requirements, *_own_requirement()})
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in requirements), encoding="utf-8")
    rows = _rows(store, manifest)
    example = as_json(rows.slice(0, EXAMPLE_ROWS))
    (folder / INPUTS).write_bytes(to_json(example))
    answers = try_folder(folder, work, rows, example)
    judged = judged_answers(store, report)
    compared: int | str = rows.num_rows
    if isinstance(judged, str):
        compared = judged
        warnings.warn(
            f"the answers of the exported {name} were not compared with those that were judged: {judged}",
            stacklevel=3,
        )
    elif mismatch := difference(answers, judged):
        raise ExportDiffers(
            f"the exported {name} does not answer as the model that was judged, for the first rows of the "
            f"test split: {mismatch}"
        )
    if (work / ONNX).exists():
        os.replace(work / ONNX, folder / ONNX)
        write_manifest(folder, asdict(manifest))
    (folder / PREDICTIONS).write_bytes(to_json(_first(answers)))
    (folder / "README.md").write_text(model_card(manifest, report, name, gates, compared), encoding="utf-8")
    write_mlmodel(folder, manifest, sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))


def _write_state(store: Store, manifest: Manifest, folder: Path, name: str) -> None:
    state = saved_state(store, manifest.checkpoint)
    write_state(state, folder)
    if not same_state(state, read_state(folder)):
        raise ExportDiffers(
            f"the exported {name} has another state than the checkpoint {manifest.checkpoint}, when it is "
            "read again"
        )


def _write_code(manifest: Manifest, folder: Path) -> None:
    for name, text in manifest.code.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    sdk = Path(halving.__file__).parent
    shutil.copytree(sdk, folder / "halving", ignore=shutil.ignore_patterns("__pycache__"))


def _own_requirement() -> list[str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return [f"safetensors=={version('safetensors')}"]
    except PackageNotFoundError:  # the state has no tensors
        return []


def _rows(store: Store, manifest: Manifest) -> "pa.Table":
    """Read the first rows of the test split, with the columns that the model takes."""
    import pyarrow as pa

    tables = list["pa.Table"]()
    left = TRIED_ROWS
    for shard in Dataset(store, manifest.dataset, manifest.snapshot).shards(_TEST_SPLIT):
        if left <= 0:
            break
        tables.append(whole_shard(store, shard, list(manifest.input_schema)).slice(0, left))
        left -= tables[-1].num_rows
    return pa.concat_tables(tables).combine_chunks().replace_schema_metadata(None)


def _first(answers: Any) -> Any:
    """The answers to the rows of the example."""
    if isinstance(answers, dict):
        return {name: column[:EXAMPLE_ROWS] for name, column in answers.items()}
    return answers[:EXAMPLE_ROWS]


def _sync(folder: Path) -> None:
    """Sync every file to the disk before the folder gets its name."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            sync_folder(path)
