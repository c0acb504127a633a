"""The blobs that the records of a project's runs name: read once, then remembered in the store.

Records are written once, so what one names never changes. It is kept in
``retention/named-blobs/project=P.parquet``, by the file's name, size and time; a listing of the project says
which files are there, and only those that are new are read. The file can be deleted at any time: then all
records are read again.

Records are searched for anything that looks like a digest, whatever its field is called: in doubt a blob
stays. Mail is not searched, because its blobs are named by records as well, or are younger than the grace
time.

A damaged record names the digests that can still be found in it, and those that it named when it was last
read, if it was.
"""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from halving.errors import NotFound, StoreError, StoreUnavailable
from halving.store.store import Store

_DIGEST = re.compile(rb"sha256:([0-9a-f]{64})")
_SHARDED = re.compile(rb'"sharded":\s*true')  # The blob of such a checkpoint record is a manifest.
_RERUN_OF = re.compile(rb'"rerun_of":\s*"([^"]+)"')
_NAMES_NOTHING = ("end-", "amend-", "alert-", "image-")  # how the records begin that name no blob
_READERS = 16  # requests to an object store at the same time
_CHUNK_RECORDS = 2_000


class Record(NamedTuple):
    """A file of a run's records, with the digests in it.

    Attributes:
        name: below the run's folder, as ``checkpoints/00000003-0001-000000.json``.
        written: seconds since 1970, by the store's clock.
        digests: of 32 bytes each.
        sharded: whether it is the record of a sharded checkpoint, whose blob names others.
        rerun_of: ``project/run`` of which the run is a rerun; empty otherwise, and in other files than the
            run's first.
        problem: a sentence on the damage; empty for a sound record.
    """

    run: str
    name: str
    size: int
    written: float
    digests: tuple[bytes, ...]
    sharded: bool
    rerun_of: str
    problem: str = ""

    @property
    def may_name_more(self) -> bool:
        """Whether it is damaged and may have named blobs that cannot be read in it any more."""
        return bool(self.problem) and not self.name.startswith(_NAMES_NOTHING)


def named_by_runs(store: Store, project: str, *, remember: bool = True) -> Iterator[tuple[str, list[Record]]]:
    """Yield each run of a project with its records, both in the order of their names.

    Args:
        remember: whether to keep in the store what was read.

    Raises:
        StoreError: the store cannot be read.
    """
    for run, records in groupby(_records(store, project, remember), attrgetter("run")):
        yield run, list(records)


def digests_in(content: bytes) -> tuple[bytes, ...]:
    """Everything that looks like a digest, each once."""
    return tuple(dict.fromkeys(bytes.fromhex(digest.decode()) for digest in _DIGEST.findall(content)))


def _records(store: Store, project: str, remember: bool) -> Iterator[Record]:
    memory = _Memory(store, project)
    threads = _READERS if store.folder is None else 1
    with ThreadPoolExecutor(threads, "halving-records") as pool:
        listing = sorted(_list_records(store, project))
        for start in range(0, len(listing), _CHUNK_RECORDS):
            chunk = listing[start : start + _CHUNK_RECORDS]
            recalled = [memory.recall(*listed) for listed in chunk]
            new = (
                (listed, before)
                for listed, (record, before) in zip(chunk, recalled, strict=True)
                if record is None
            )
            read = pool.map(lambda item: _read(store, project, *item[0], before=item[1]), new)
            records = []
            for remembered, _ in recalled:
                record = remembered or next(read)
                if record is not None:
                    records.append(record)
            memory.note(records)
            yield from records
    if remember:
        memory.write()


def _list_records(store: Store, project: str) -> Iterator[tuple[str, str, int, float]]:
    """Run, name, size and time of each record."""
    folder = f"runs/project={project}"
    for path, size, written in store.files(folder):
        run, _, name = path[len(folder) + 1 :].partition("/")
        if (
            name.endswith(".json")
            and not name.startswith("mail/")
            and not name.rpartition("/")[2].startswith(".")
        ):
            yield run, name, size, written


def _read(
    store: Store,
    project: str,
    run: str,
    name: str,
    size: int,
    written: float,
    *,
    before: tuple[bytes, ...] = (),
) -> Record | None:
    """Read a record; None where the run was deleted since it was listed.

    Args:
        before: the digests that it named when it was last read.
    """
    file = f"runs/project={project}/{run}/{name}"
    content = b""
    problem = ""
    try:
        content = store.read(file)
    except NotFound:
        return None
    except StoreUnavailable:
        raise
    except StoreError as error:
        if store.folder is None:
            raise
        problem = str(error)
    rerun_of = ""
    try:
        fields: Any = json.loads(content)
        if name == "record.json":
            rerun_of = str((fields.get("parent") or {}).get("rerun_of") or "")
    except (AttributeError, ValueError) as error:
        problem = problem or f"{store.address(file)} is damaged: {error}"
    if not problem:
        return Record(run, name, size, written, digests_in(content), bool(_SHARDED.search(content)), rerun_of)
    if name == "record.json" and (source := _RERUN_OF.search(content)):
        rerun_of = source[1].decode(errors="replace")
    digests = tuple(dict.fromkeys([*digests_in(content), *before]))
    # It may have been a sharded checkpoint's record, so what its blobs name stays, if they are manifests.
    return Record(run, name, size, written, digests, True, rerun_of, problem)


class _Memory:
    """The records that were read by an earlier call, in the order of run and name, and those to remember."""

    def __init__(self, store: Store, project: str) -> None:
        self._store = store
        self._name = f"retention/named-blobs/project={project}.parquet"
        self._before = self._read_file()
        self._next = next(self._before, None)
        self._changed = False
        self._notes: list[list[Record]] = []

    def recall(
        self, run: str, name: str, size: int, written: float
    ) -> tuple[Record | None, tuple[bytes, ...]]:
        """A record that was read before and is sound, or None; and what a file of its name named.

        Call it in the order of run and name.
        """
        while self._next is not None and self._next[:2] < (run, name):
            self._next = next(self._before, None)
            self._changed = True
        remembered = self._next
        if remembered is not None and remembered[:4] == (run, name, size, written) and not remembered.problem:
            self._next = next(self._before, None)
            return remembered, remembered.digests
        self._changed = True
        if remembered is not None and remembered[:2] == (run, name):
            return None, remembered.digests
        return None, ()

    def note(self, records: list[Record]) -> None:
        """Remember the next records, in the order of run and name."""
        self._notes.append(records)

    def write(self) -> None:
        """Write what is to be remembered into the store, if it is not there already."""
        if self._changed or self._next is not None:
            with contextlib.suppress(StoreError):
                # The disk may be full, and retention is to free it: then all records are read again.
                self._store.replace(self._name, _encode(self._notes))

    def _read_file(self) -> Iterator[Record]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(io.BytesIO(self._store.read(self._name)))
            for batch in file.iter_batches(_CHUNK_RECORDS):
                columns = [batch.column(field).to_pylist() for field in Record._fields]
                for run, name, size, written, digests, *rest in zip(*columns, strict=True):
                    yield Record(run, name, size, written, tuple(digests), *rest)
        except (NotFound, pa.ArrowException, KeyError, OSError):
            # The file is missing, damaged, or of another version: all records are read again.
            return


def _encode(chunks: list[list[Record]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        {
            "run": pa.string(),
            "name": pa.string(),
            "size": pa.int64(),
            "written": pa.float64(),
            "digests": pa.list_(pa.binary(32)),
            "sharded": pa.bool_(),
            "rerun_of": pa.string(),
            "problem": pa.string(),
        }
    )
    target = io.BytesIO()
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for records in chunks:
            writer.write_table(
                pa.table(
                    [list(column) for column in zip(*records, strict=True)] or [[]] * len(schema),
                    schema=schema,
                )
            )
    return target.getvalue()
