"""Which rows of a source are read for a snapshot, and what it takes over from the snapshot before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from halving import Store
from resources.datasets.cutting import Cut, Cutter
from resources.datasets.dealing import DealtRows, check_splits
from resources.datasets.file_sources import Part
from resources.datasets.manifest import hash_rules, read_schema, schema_sha256
from resources.datasets.previous_snapshot import Digests, PreviousSnapshot
from resources.datasets.sources import OpenedSource
from resources.datasets.united_parts import fit_union, read_parts, unite_columns
from resources.sweep_spec.dataset import DatasetSource


class Plan(Protocol):
    """How a snapshot is made of a source."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema that the rows must have; None takes that of the first rows."""

    @property
    def read_as(self) -> pa.Schema | None:
        """The union of the columns of all parts, to which their rows are cast.

        None if the parts cannot say their columns beforehand.
        """

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the rows that the plan needs.

        Raises:
            InvalidInput: a part cannot be read, or has a value that the union does not hold.
            StoreError: the object store cannot be read.
        """

    def cut(self, cutter: Cutter, dealt: DealtRows) -> Cut:
        """Cut the rows that were read into the shards of the snapshot."""


@dataclass(frozen=True)
class Append:
    """Read only the parts that are new, and append their rows to the previous snapshot.

    Attributes:
        parts: all parts of the source.
        added: numbers of the new parts; empty if the source is unchanged.
    """

    previous: PreviousSnapshot
    schema: pa.Schema
    parts: Sequence[Part]
    added: list[int]

    @property
    def read_as(self) -> pa.Schema | None:
        return self.previous.read_as

    def read(self) -> Iterator[pa.RecordBatch]:
        return read_parts((self.parts[number] for number in self.added), self.read_as)

    def cut(self, cutter: Cutter, dealt: DealtRows) -> Cut:
        return cutter.append(dealt.spools, self.previous)


@dataclass(frozen=True)
class Rewrite:
    """Read all rows.

    Where the schema is unchanged, the cuts of the previous snapshot are made again as long as the rows are
    the same, so that its shards are not stored twice.
    """

    source: DatasetSource
    previous: PreviousSnapshot | None
    parts: Sequence[Part]
    read_as: pa.Schema | None
    schema: None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        return read_parts(self.parts, self.read_as)

    def cut(self, cutter: Cutter, dealt: DealtRows) -> Cut:
        check_splits(self.source, dealt)
        previous = self.previous
        if previous is not None and previous.manifest["schema_sha256"] != schema_sha256(dealt.schema):
            previous = None
        return cutter.cut(dealt.spools, previous)


def make_plan(
    store: Store,
    source: DatasetSource,
    opened: OpenedSource,
    digests: Digests | None,
    previous: PreviousSnapshot | None,
    *,
    refresh: bool,
) -> Plan:
    """Decide which rows of an opened source are read.

    Args:
        digests: digests of its parts' identities; None if they have none.
        previous: the dataset's newest snapshot, if its rows were dealt and cut by the same rules.
        refresh: whether all rows are read, even those of parts that are unchanged.

    Raises:
        InvalidInput: two parts do not go together, or one cannot be read.
        StoreError: the store or the object store cannot be read.
    """
    if previous is not None and not refresh:
        append = _plan_append(store, source, opened, digests, previous)
        if append is not None:
            return append
    read_as = unite_columns(f"dataset.{source.origin[0]}.files", opened.parts)
    return Rewrite(source, previous, opened.parts, read_as)


def _plan_append(
    store: Store,
    source: DatasetSource,
    opened: OpenedSource,
    digests: Digests | None,
    previous: PreviousSnapshot,
) -> Append | None:
    """Plan to append to the previous snapshot.

    None if a part is gone or changed, or if the schema or the rules of hashes are not as before.
    """
    if previous.parts is None or previous.manifest["hash_rules"] != hash_rules(source):
        return None
    schema = read_schema(store, previous.manifest)
    if schema_sha256(schema) != previous.manifest["schema_sha256"]:
        return None
    added = previous.added_parts(digests)
    if added is None:
        return None
    if added and not fit_union(previous.read_as, [opened.parts[number] for number in added]):
        return None
    return Append(previous, schema, opened.parts, added)
