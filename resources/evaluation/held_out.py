"""The rows that checkpoints are judged on, read once for all of them; only the target is in memory."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from halving import Dataset
from halving.errors import InvalidInput
from halving.machine.temporary_folders import scratch_folder
from resources.datasets.row_hashes import column_words, hash_rows
from resources.evaluation.columns import Coded, Coding, encode_arrow, numbers_of
from resources.evaluation.slices import columns_of
from resources.evaluation.statistics.clusters import Clusters, among, number_clusters
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.evaluation import judged_as_number
from resources.sweep_spec.metrics import CLASS_METRICS, NUMBER_METRICS

TEST_SPLIT = "test"


@dataclass(frozen=True)
class HeldOut:
    """A split that checkpoints are scored on.

    Attributes:
        dataset: the dataset for a checkpoint's function; its train split is what the checkpoint was trained
            on.
        rows: the number of rows.
        regression: whether the target is a number to come close to; see :func:`judged_as_number`.
        metrics: the metrics by which a predictor is scored.
        target: the target of each row, for a predictor: numbers or classes. Shape (rows,); None for an
            evaluator.
        without_target: how many rows have no target.
        file: the rows without the target column, for a predictor's process (Arrow IPC).
        slices: the columns of the slices, mapped from a file.
        clusters: the number of each row's group, if the dataset has groups and some have several rows.
    """

    dataset: Dataset
    rows: int
    regression: bool
    metrics: list[str]
    target: Coded | NDArray[np.float64] | None = None
    without_target: int = 0
    file: str | None = None
    slices: pa.Table = field(default_factory=lambda: pa.table({}))
    clusters: Clusters | None = None

    def trained_on(self, splits: Sequence[str]) -> "HeldOut":
        """The same rows for a checkpoint that was trained on these splits, its dataset's train split."""
        dataset = self.dataset
        return self.seen_with(Dataset(dataset.store, dataset.name, dataset.digest, splits))

    def seen_with(self, dataset: Dataset) -> "HeldOut":
        """The same rows for a checkpoint that was trained on another snapshot.

        Its predictor scales the rows and orders the classes by that snapshot.
        """
        return replace(self, dataset=dataset)


@contextmanager
def held_out(dataset: Dataset, spec: SweepSpec) -> Iterator[HeldOut]:
    """Read the test split of a snapshot into files that last while checkpoints are scored on it.

    Raises:
        InvalidInput: a metric does not fit the target, or there are no rows.
    """
    regression = judged_as_number(dataset.manifest["schema"][dataset.target], spec.metrics, spec.gate_metrics)
    metrics = spec.metrics or CLASS_METRICS
    if regression:
        metrics = spec.metrics or NUMBER_METRICS
    group = spec.dataset.group or []
    sliced = list(dict.fromkeys(name for condition in spec.slices for name in columns_of(condition)))
    with scratch_folder("rows") as folder:
        features = _Rows(folder / "rows.arrow")
        of_slices = _Rows(folder / "slices.arrow")
        target = _Target(dataset.target, regression)
        hashes = list[NDArray[np.uint64]]()
        count = 0
        with features, of_slices:
            for batch in dataset.batches(TEST_SPLIT):
                count += batch.num_rows
                if spec.predictor:
                    target.add(batch.column(dataset.target))
                    features.write(batch.drop_columns([dataset.target]))
                if sliced:
                    of_slices.write(batch.select(sliced))
                if group:
                    hashes.append(hash_rows(column_words(batch.select(group)), group))
        if not count:
            raise InvalidInput(
                f"there are no rows to score: the {TEST_SPLIT} split of {dataset.name} is empty"
            )
        rows = HeldOut(dataset, count, regression, list(metrics), without_target=target.missing)
        if spec.predictor:
            rows = replace(rows, target=target.whole(), file=str(features.path))
        if sliced:
            rows = replace(rows, slices=of_slices.map_file())
        if group:
            clusters = among(number_clusters(np.concatenate(hashes)), np.arange(count))
            rows = replace(rows, clusters=clusters)
        yield rows


class _Rows:
    """A file of rows that are written batch by batch (Arrow IPC)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = ExitStack()
        self._writer: pa.RecordBatchFileWriter | None = None

    def __enter__(self) -> "_Rows":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            sink = self._open.enter_context(pa.OSFile(str(self.path), "wb"))
            self._writer = self._open.enter_context(pa.ipc.new_file(sink, batch.schema))
        self._writer.write_batch(batch)

    def map_file(self) -> pa.Table:
        """All rows, mapped from the file."""
        return pa.ipc.open_file(pa.memory_map(str(self.path))).read_all()


class _Target:
    """The target of all rows, added batch by batch.

    Attributes:
        missing: how many rows have no target.
    """

    def __init__(self, name: str, regression: bool) -> None:
        self._name = name
        self._regression = regression
        self._coding = Coding()
        self._parts = list[NDArray[Any]]()
        self.missing = 0

    def add(self, column: pa.Array) -> None:
        if pa.types.is_nested(column.type):
            raise InvalidInput(
                f"predictor is not accepted for the column {self._name!r}, which is {column.type}: a "
                "predictor gives texts, numbers or booleans; give an evaluator"
            )
        self.missing += column.null_count
        if self._regression:
            self._parts.append(numbers_of(column))
        else:
            self._parts.append(self._coding.recode(encode_arrow(column)))

    def whole(self) -> Coded | NDArray[np.float64]:
        whole = np.concatenate(self._parts)
        if self._regression:
            return whole
        return Coded(self._coding.values, whole)


__all__ = ["TEST_SPLIT", "HeldOut", "held_out"]
