"""Models that answer: a version of the registry, or a folder that was exported from one."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from halving.checkpoints.restoring import saved_state
from halving.data.dataset import Dataset
from halving.errors import HalvingError, InvalidInput
from halving.models.exported import import_named, import_predictor, is_exported, read_manifest
from halving.models.inputs import checked_inputs
from halving.models.loaded_run import ExportedRun, LoadedRun
from halving.models.manifest import Manifest
from halving.models.published import ResolvedModel, find
from halving.models.source_code import code_of
from halving.models.weights import read_state
from halving.run.trained_run import TrainedRun
from halving.store.store import Store


class WrongPrediction(HalvingError, RuntimeError):
    """The predictor did not return one prediction for each row."""


class Model:
    """A model that answers: a checkpoint with its predictor.

    Attributes:
        manifest: what the model is made of: params, schemas, metrics, digests.
        run: the trained run that the predictor gets. Its checkpoint was read, and checked against its digest,
            when the model was loaded.
    """

    def __init__(self, manifest: Manifest, run: TrainedRun, predictor: Callable[..., Any]) -> None:
        self.manifest = manifest
        self.run = run
        self._predictor = predictor

    def __repr__(self) -> str:
        return f"Model({self.manifest.model!r}, {self.manifest.checkpoint!r})"

    @property
    def input_schema(self) -> dict[str, str]:
        """Arrow types by column."""
        return self.manifest.input_schema

    def predict(self, rows: Any) -> Any:
        """Predict for rows: return what the predictor returns, one prediction for each row.

        Args:
            rows: a :class:`pyarrow.Table`, a dict of columns, or a pandas data frame, without the target.
                Columns that the model does not take are left out.

        Raises:
            InvalidInput: a column is missing, not of the type that the model was trained with, or has nulls
                where there were none.
            WrongPrediction: the predictor returned something else.
        """
        table = checked_inputs(rows, self.manifest.input_schema, self.manifest.complete)
        predicted = self._predictor(self.run, table)
        columns = [predicted]
        if isinstance(predicted, Mapping):
            columns = list(predicted.values())
        for column in columns:
            if not hasattr(column, "__len__"):
                raise WrongPrediction(
                    f"predictor {self.manifest.predictor} returned a {type(column).__name__}; return a "
                    "list, an array or a dict of probabilities, with a value for each of the "
                    f"{table.num_rows} rows"
                )
            if len(column) != table.num_rows:
                raise WrongPrediction(
                    f"predictor {self.manifest.predictor} returned {len(column)} predictions for "
                    f"{table.num_rows} rows"
                )
        return predicted


def load_model(reference: str | Path, root: str | Path | None = None) -> Model:
    """Load a version of a model: ``halving.load_model("digits@champion").predict(table)``.

    Only the store is read, so this works while the catalog is away. Nothing is unpickled. The predictor is
    imported from this environment, and a warning says if its code has changed since the version was judged.

    Args:
        reference: ``MODEL@champion``, ``MODEL@1.0.0``, ``MODEL@ALIAS``, or a folder of ``halving models
            export``, whose own code is used.
        root: of the store (default: ``HALVING_ROOT``, then ``./.halving``).

    Raises:
        InvalidInput: the version cannot be loaded: a client registered it, or its predictor cannot be
            imported here.
        NotFound: there is no such version.
        StoreError: its manifest's or its checkpoint's bytes do not hash to their digest.
    """
    if isinstance(reference, Path) or is_exported(Path(reference)):
        return load_exported(Path(reference))
    store = Store(root)
    manifest = manifest_of(store, find(store, reference))
    run = trained_run(store, manifest)  # a damaged checkpoint is refused before any answer
    try:
        predictor = import_named(f"predictor of {reference}", manifest.answered_by)
    except InvalidInput as error:
        if manifest.predictor is None or not manifest.code:
            raise
        raise InvalidInput(
            f"{error}; halving models export {reference} FOLDER writes a folder with the code as it was"
        ) from error
    if manifest.code and not _is_part(code_of(manifest.answered_by).files, manifest.code):
        warnings.warn(
            f"the code of {manifest.predictor} is not what it was when {reference} was judged; "
            f"halving models export {reference} FOLDER brings that back",
            stacklevel=2,
        )
    return Model(manifest, run, predictor)


def _is_part(predictor: dict[str, str], judged: dict[str, str]) -> bool:
    """Whether a predictor's files are as they were judged.

    An exporter's files may differ, because it does not answer.
    """
    return bool(predictor) and predictor.items() <= judged.items()


def load_exported(folder: Path) -> Model:
    """Load the model of a folder of :func:`halving.models.export.export_model`, with the code in it.

    Raises:
        InvalidInput: it is no such folder, its predictor cannot be imported, or other code of its name was
            imported before.
        StoreError: a file of it is not what was exported.
    """
    manifest = read_manifest(folder)
    run = ExportedRun(params=manifest.params, checkpoint=manifest.checkpoint, state=read_state(folder))
    return Model(manifest, run, import_predictor(folder, manifest))


def manifest_of(store: Store, version: ResolvedModel) -> Manifest:
    """Read the manifest of a version.

    Raises:
        InvalidInput: it has none.
        StoreError: it is damaged.
    """
    name = f"{version.model} {version.version}"
    if version.manifest is not None:
        return Manifest.read(store, version.manifest)
    if version.digest is None:
        raise InvalidInput(
            f"{name} was registered by a client of MLflow's API, which loads it: "
            f"mlflow.pyfunc.load_model({version.uri!r})"
        )
    raise InvalidInput(
        f"{name} was registered before versions had manifests: halving models judge {version.model} "
        f"{version.version} judges it again and writes one"
    )


def trained_run(store: Store, manifest: Manifest) -> LoadedRun:
    """Load the run that a version's predictor gets.

    Raises:
        StoreError: the checkpoint's bytes do not hash to their digest.
    """
    state = saved_state(store, manifest.checkpoint)
    dataset = Dataset(store, manifest.dataset, manifest.snapshot, manifest.train_on)
    return LoadedRun(
        store, params=manifest.params, dataset=dataset, checkpoint=manifest.checkpoint, state=state
    )
