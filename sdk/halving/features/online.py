"""Looking up features in a serving process: the latest values of an entity, as they were computed offline."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from halving.errors import InvalidInput, NotFound
from halving.features.definition import Definition, arrow_type
from halving.features.online_values import Values, hide_password, open_values
from halving.features.packing import Layouts, count_of, entity_key, entity_keys, event_of, micros
from halving.features.reference import Reference, parse_references

if TYPE_CHECKING:
    import pyarrow as pa


class OnlineFeatures:
    """Looks up the latest values of a fixed list of features, such as a model's, in the online store.

    A value counts while it is not older than the view's ``ttl``, by its event time. Threads and forked
    processes may share this object.

    Args:
        address: ``redis://HOST:PORT/NUMBER``, or the path of a file.
        features: references such as ``clicks@1:ctr``; each becomes a column of its own, in this order.
        timeout: seconds to wait for an answer of the store.

    Attributes:
        definitions: the definitions of the views, by ``clicks@1``.
        columns: the names of the features in what is read.

    Raises:
        InvalidInput: a reference is not accepted, or its view has no such feature.
        NotFound: there is no such store, or a view was never pushed there.
        StoreUnavailable: the store does not answer.
    """

    def __init__(self, address: str, features: Iterable[str], *, timeout: float = 1.0) -> None:
        import pyarrow  # noqa: F401  # takes a quarter of a second, which no request shall wait for

        self._references = parse_references(features)
        self._address = hide_password(address)
        self._values: Values = open_values(address, timeout)
        try:
            self._views = [
                _View(key, references, self._layouts)
                for key, references in _by_view(self._references).items()
            ]
        except BaseException:
            self._values.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def columns(self) -> list[str]:
        """The names of the features in what is read, in the order of the references."""
        return [reference.column for reference in self._references]

    @property
    def definitions(self) -> dict[str, Definition]:
        """The definitions of the views, by ``clicks@1``."""
        return {view.key: view.layouts.definition for view in self._views}

    def get(self, entity: Mapping[str, Any], *, now: datetime | None = None) -> dict[str, Any]:
        """The features of one entity by name; None for one that is unknown or too old.

        Args:
            entity: the entity columns of all views; other names in it are ignored.
            now: the time that ``ttl`` counts back from, with a time zone (default: the present).

        Raises:
            InvalidInput: a column is missing, or not of the view's type.
            StoreUnavailable: the store does not answer.
        """
        now_micros = _micros(now)
        wanted = []
        for view in self._views:
            key = entity_key(view.layouts.definition, entity)
            wanted.append((view.key, [key] if key is not None else []))
        features: dict[str, Any] = {}
        for view, values in zip(self._views, self._values.fetch(wanted), strict=True):
            value = view.unless_expired([*values, None][0], now_micros)
            unpacked = {}
            if value is not None:
                unpacked = view.layouts.of(value).unpack(value)
            for reference in view.references:
                features[reference.column] = unpacked.get(reference.feature)
        return {column: features[column] for column in self.columns}

    def read(
        self, entities: "pa.Table | Sequence[Mapping[str, Any]]", *, now: datetime | None = None
    ) -> "pa.Table":
        """The features of many entities: one row for each, in order, with the columns :attr:`columns`.

        Raises:
            InvalidInput: a column is missing, or not of the view's type.
            StoreUnavailable: the store does not answer.
        """
        import pyarrow as pa

        now_micros = _micros(now)
        wanted = []
        rows_of = []
        count = len(entities)
        for view in self._views:
            definition = view.layouts.definition
            if isinstance(entities, pa.Table):
                keys = entity_keys(definition, entities)
            else:
                keys = [entity_key(definition, entity) for entity in entities]
            rows_of.append([row for row, key in enumerate(keys) if key is not None])
            wanted.append((view.key, [key for key in keys if key is not None]))
        columns: dict[str, pa.Array] = {}
        for view, rows, values in zip(self._views, rows_of, self._values.fetch(wanted), strict=True):
            current = [view.unless_expired(value, now_micros) for value in values]
            columns.update(view.table(rows, current, count))
        return pa.table({column: columns[column] for column in self.columns})

    def close(self) -> None:
        """Close the connections; the object may be used again."""
        self._values.close()

    def _layouts(self, view: str) -> Layouts:
        definition = self._values.definition(view)
        if definition is None:
            raise NotFound(
                f"the online store {self._address} has no feature view {view}: push it there first"
            )
        return Layouts(Definition.from_json(definition))


class _View:
    """One view of a reader: the features that are read of it, and the layouts of its values."""

    def __init__(self, key: str, references: list[Reference], load: Callable[[str], Layouts]) -> None:
        self.key = key
        self.references = references
        self._load = load
        self.layouts = load(key)
        for reference in references:
            self.layouts.definition.check(reference)

    def unless_expired(self, value: bytes | None, now: int) -> bytes | None:
        """Return the value, or None if its time to live is over."""
        ttl = self.layouts.definition.ttl
        if value is None or (ttl is not None and now - event_of(value) > ttl):
            return None
        if count_of(value) > len(self.layouts.definition.features):
            # The view got a feature since this process began.
            self.layouts = self._load(self.key)
        return value

    def table(self, rows: Sequence[int], values: Sequence[bytes | None], count: int) -> "dict[str, pa.Array]":
        """Make the columns of this view with ``count`` rows, of which ``rows`` have these values."""
        import numpy as np
        import pyarrow as pa

        by_layout: dict[int, tuple[list[int], list[bytes]]] = defaultdict(lambda: ([], []))
        for row, value in zip(rows, values, strict=True):
            if value is not None:
                places, values_of_layout = by_layout[count_of(value)]
                places.append(row)
                values_of_layout.append(value)
        order = np.full(count, -1, np.int64)
        pieces = []
        filled = 0
        for places, values_of_layout in by_layout.values():
            order[places] = np.arange(filled, filled + len(values_of_layout))
            filled += len(values_of_layout)
            pieces.append(self.layouts.of(values_of_layout[0]).columns(values_of_layout))
        picked = pa.array(order, mask=order < 0)
        columns = {}
        for reference in self.references:
            kind = arrow_type(self.layouts.definition.features[reference.feature])
            parts = []
            for piece, (_, values_of_layout) in zip(pieces, by_layout.values(), strict=True):
                array = piece.get(reference.feature)
                if array is None:
                    array = pa.nulls(len(values_of_layout), kind)
                parts.append(array)
            columns[reference.column] = pa.nulls(count, kind)
            if parts:
                columns[reference.column] = pa.concat_arrays(parts).take(picked)
        return columns


def _by_view(references: Sequence[Reference]) -> dict[str, list[Reference]]:
    views: dict[str, list[Reference]] = defaultdict(list)
    for reference in references:
        views[reference.key].append(reference)
    return dict(views)


def _micros(now: datetime | None) -> int:
    """Convert a time to microseconds since 1970; None is the present."""
    if now is None:
        return time.time_ns() // 1000
    if now.tzinfo is None:
        raise InvalidInput(
            f"now = {now} is not accepted: it has no time zone; give one, for example datetime.now(UTC)"
        )
    return micros(now)
