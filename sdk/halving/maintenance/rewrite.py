"""Reading points from any of the store's files and writing them sorted: what compaction, merging and retention share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.maintenance.external_sort import CurveKey, Sorter
from halving.maintenance.rollups import BUCKET, Rollup
from halving.metrics.manifest import Manifest, family_of, project_folder
from halving.metrics.segments import schema, write_options
from halving.store.filesystem import missing_when_gone
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

OWN_GROUP = 10_000  # points of a key, of all runs in the file, from which on it gets row groups of its own
_ROW_GROUP = 1 << 18
_SHARED = 1 << 16  # points in a row group that small keys share
_BATCH = 1 << 18
# Level 9 takes 3 % off noisy losses and 5-15 % off gauges, and costs as much to read as any other level.
_OPTIONS: dict[str, Any] = {"compression_level": 9, "write_statistics": ["run", "key", "step", "wall_time"]}

Keep = Callable[[str], bool]


@dataclass(frozen=True)
class Rewritten:
    """Files that were written locally.

    Attributes:
        full: the sorted points, or None when there are none.
        rollup: their buckets, or None when there are none.
        held: points in ``full`` of each run, by family of keys.
    """

    full: Path | None
    rollup: Path | None
    held: dict[str, dict[str, int]]

    @property
    def points(self) -> int:
        return sum(sum(families.values()) for families in self.held.values())


def add_file(sorter: Sorter, store: Store, name: str, run: str, keep: Keep = lambda key: True) -> dict[bytes, bytes]:
    """Add one run's points of a file, those whose key ``keep`` accepts, and give the file's metadata.

    Raises:
        FileNotFoundError: the file is gone.
    """
    import pyarrow.parquet as pq

    with missing_when_gone(), store.filesystem.open_input_file(store.path(name)) as handle, pq.ParquetFile(handle) as file:
        groups = [group for group in range(file.num_row_groups) if _may_hold(file, group, run)]
        columns = ["run", "attempt", "key", "step", "wall_time", "value"]
        for batch in file.iter_batches(_BATCH, row_groups=groups, columns=columns):
            sorter.add(_only(batch, run, keep), run)
        metadata: dict[bytes, bytes] = file.metadata.metadata or {}
    return metadata


def add_history(sorter: Sorter, store: Store, project: str, run: str, manifest: Manifest) -> dict[int, tuple[int, Any]]:
    """The finest buckets of what retention took out of a run's full file: curve number to level and buckets."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[int, tuple[int, Any]] = {}
    for family, name in manifest.history.items():
        with missing_when_gone(), store.filesystem.open_input_file(store.path(f"{project_folder(project)}/{name}")) as handle:
            table = pq.read_table(handle, filters=[("run", "=", run)])
        keys, levels = np.array(table["key"].to_pylist(), object), table["level"].to_numpy()
        buckets = np.zeros(len(table), BUCKET)
        for column, kind in BUCKET[1:]:
            buckets[column] = table[column].cast(pa.int64() if kind == "<i8" else pa.float64()).to_numpy()
        for key in sorted({key for key in keys if family_of(key) == family}):
            here = keys == key
            finest = int(levels[here].min())
            own = buckets[here & (levels == finest)]
            code = sorter.code(CurveKey(key, run))
            own["curve"] = code
            found[code] = (finest, own[np.argsort(own["step"], kind="stable")])
    return found


def write_sorted(
    sorter: Sorter, history: Mapping[int, tuple[int, Any]] | None = None, metadata: Mapping[bytes, bytes] | None = None
) -> Rewritten:
    """Write what a sorter has, sorted by (key, run, step), and its rollup, into the sorter's folder.

    Args:
        history: what :func:`add_history` gave.
        metadata: for both files.
    """
    told = dict(metadata) if metadata else None
    totals = sorter.totals().tolist()
    of_key: dict[str, int] = {}
    for curve, total in zip(sorter.curves, totals, strict=True):
        of_key[curve.key] = of_key.get(curve.key, 0) + total
    full, rolled = sorter.folder / "full.parquet", sorter.folder / "rollup.parquet"
    rollup = Rollup(sorter.curves, sorter.folder, dict(history or {}))
    if sum(totals):
        with _PointsFile(full, sorter.curves, of_key, told) as file:
            for points in sorter.chunks():
                file.add(points)
                rollup.add(points)
    if sorter.curves:
        rollup.write(rolled, told)
    return Rewritten(full if sum(totals) else None, rolled if sorter.curves else None, held_by(sorter))


def held_by(sorter: Sorter) -> dict[str, dict[str, int]]:
    """How many points a sorter has of each run, by family of keys."""
    held: dict[str, dict[str, int]] = {}
    for curve, total in zip(sorter.curves, sorter.totals().tolist(), strict=True):
        families, family = held.setdefault(curve.run, {}), family_of(curve.key)
        if total:
            families[family] = families.get(family, 0) + total
    return held


class _PointsFile:
    """A file of points, with row groups of their own for keys that have many, so that who reads one key skips the others."""

    def __init__(self, path: Path, curves: list[CurveKey], totals: Mapping[str, int], metadata: dict[bytes, bytes] | None) -> None:
        import pyarrow.parquet as pq

        self._schema = schema().with_metadata(metadata)
        self._file: pq.ParquetWriter = pq.ParquetWriter(path, self._schema, **write_options(), **_OPTIONS)
        self._curves, self._totals = curves, totals
        self._waiting: list[Any] = []
        self._count, self._size, self._key = 0, 0, ""

    def __enter__(self) -> "_PointsFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        self._file.close()

    def add(self, points: Any) -> None:
        """The next points, in order."""
        import numpy as np

        starts = np.concatenate([[0], np.flatnonzero(np.diff(points["curve"])) + 1])
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(points)], strict=True):
            key = self._curves[points["curve"][start]].key
            if key != self._key:
                self._start_key(key)
            self._put(points[start:end])

    def _start_key(self, key: str) -> None:
        before, total = self._totals.get(self._key, 0), self._totals[key]
        if before >= OWN_GROUP or total >= OWN_GROUP or self._count + total > self._size:
            self._flush()
            groups = -(-total // _ROW_GROUP)
            self._size = -(-total // groups) if total >= OWN_GROUP else _SHARED
        self._key = key

    def _put(self, points: Any) -> None:
        while len(points):
            room = self._size - self._count
            self._waiting.append(points[:room])
            self._count += len(self._waiting[-1])
            points = points[room:]
            if self._count == self._size:
                self._flush()

    def _flush(self) -> None:
        import numpy as np
        import pyarrow as pa

        if not self._count:
            return
        points = np.concatenate(self._waiting)
        self._waiting, self._count = [], 0
        codes, places = np.unique(points["curve"], return_inverse=True)
        named = [self._curves[code] for code in codes.tolist()]
        columns = [
            _texts([curve.run for curve in named], places),
            pa.array(np.ascontiguousarray(points["attempt"])),
            _texts([curve.key for curve in named], places),
            pa.array(np.ascontiguousarray(points["step"])),
            pa.array(np.ascontiguousarray(points["wall_time"])).cast(pa.timestamp("ms", tz="UTC")),
            pa.array(np.ascontiguousarray(points["value"])),
        ]
        self._file.write_table(pa.Table.from_arrays(columns, schema=self._schema), row_group_size=len(points))


def _texts(names: list[str], places: Any) -> "pa.DictionaryArray":
    """Texts as a dictionary of those that occur, each once."""
    import numpy as np
    import pyarrow as pa

    distinct, mapping = np.unique(np.array(names, object), return_inverse=True)
    return pa.DictionaryArray.from_arrays(pa.array(mapping.astype(np.int32)[places]), pa.array(distinct.tolist(), pa.string()))


def _may_hold(file: "pq.ParquetFile", group: int, run: str) -> bool:
    statistics = file.metadata.row_group(group).column(0).statistics
    return statistics is None or not statistics.has_min_max or statistics.min <= run <= statistics.max


def _only(batch: "pa.RecordBatch", run: str, keep: Keep) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return batch
    named = batch.column("run").dictionary.to_pylist()
    if named != [run]:
        batch = batch.filter(pc.equal(batch.column("run").cast(pa.string()), run))
    keys = batch.column("key").dictionary.to_pylist()
    kept = [key for key in keys if keep(key)]
    if len(kept) < len(keys):
        batch = batch.filter(pc.is_in(batch.column("key").cast(pa.string()), pa.array(kept, pa.string())))
    return batch
