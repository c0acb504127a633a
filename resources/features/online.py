"""Pushing a view's latest known features to the online store, and deleting those of an entity.

Features are pushed as they were computed. An older event never replaces a newer one, whoever pushes when: the
online store compares values by event, known time and generation, in one transaction of SQLite or one script
of Redis. A value that is no longer in a day that was made again is withdrawn, and what was known before takes
its place (:mod:`resources.features.withdrawn`). Pushing again changes nothing.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from halving import Store
from halving.errors import InvalidInput, NotFound
from halving.features.definition import Definition
from halving.features.online_values import hide_password, is_redis, open_values
from halving.features.packing import Layout, entity_key, micros
from resources.features.engine import MEMORY, engine
from resources.features.labels import day_of
from resources.features.online_rows import latest_rows, pack_rows
from resources.features.online_writer import WAIT, Writer
from resources.features.partitions import partitions
from resources.features.redis_writer import RedisWriter
from resources.features.sqlite_writer import SqliteWriter
from resources.features.view import FeatureView
from resources.features.withdrawn import Push, settle_new, withdraw


@dataclass(frozen=True)
class Pushed:
    """The counts of a push.

    Attributes:
        entities: how many entities had a latest row.
        taken: for how many of them it was newer than the online value.
        withdrawn: how many online values were withdrawn, because no day has their row any more.
    """

    entities: int
    taken: int
    withdrawn: int = 0


def push(
    store: Store,
    view: FeatureView,
    address: str,
    *,
    until: datetime | None = None,
    days: Collection[date] | None = None,
    memory: str = MEMORY,
) -> Pushed:
    """Push the features of each entity that are known at a time.

    Args:
        address: ``redis://…``, or a file, which is made if it is missing.
        until: only rows that are known by then, with a time zone (default: now).
        days: only rows whose events are of these days (default: all that may still count). Only values of
            these days are withdrawn, too.

    Raises:
        InvalidInput: the view was pushed with another definition, or ``until`` has no time zone.
        NotFound: the view has not been materialised.
        StoreUnavailable: the online store does not answer.
    """
    if until is not None and until.tzinfo is None:
        raise InvalidInput(
            f"until = {until} is not accepted: it has no time zone; give one, for example datetime.now(UTC)"
        )
    known_by = time.time_ns() // 1000
    if until is not None:
        known_by = micros(until)
    materialized = partitions(store, view.name, view.version)
    if not materialized:
        raise NotFound(
            f"the feature view {view.key} has not been materialised in {store.root}; halving features "
            "materialize does it"
        )
    ttl = view.ttl_micros
    first = date.min
    if ttl is not None:
        first = day_of(known_by - ttl)
    last = day_of(known_by)
    in_reach = [partition for partition in materialized if first <= partition.day <= last]
    chosen = [partition for partition in in_reach if days is None or partition.day in days]
    newest = materialized[-1].definition
    entities = 0
    taken = 0
    with open_writer(address) as writer:
        if not writer.has(view.key):
            settle_new(writer, view.key, materialized)
        definition = writer.define(view.definition(dict(newest.entity), newest.inputs))
        layout = Layout(definition.features)
        with engine(f"pushing the feature view {view.key}", memory) as (connection, _):
            for batch in latest_rows(connection, store, definition, chosen, known_by):
                taken += writer.put(view.key, pack_rows(definition, layout, batch), ttl)
                entities += batch.num_rows
            push_done = Push(chosen, in_reach, known_by, ends_now=until is None)
            withdrawn = withdraw(connection, store, writer, definition, push_done)
    return Pushed(entities, taken, withdrawn)


def delete(view: str, entity: Mapping[str, Any], address: str) -> bool:
    """Delete an entity's online features of a view (``clicks@1``); return whether there were some.

    A push of what happened until now does not bring them back; what happens from now on counts again. For
    that the entity's key and the time of the deletion are kept. Days in the store, from which features are
    pushed, and snapshots are not changed.

    Args:
        entity: the entity's columns, none of them null.

    Raises:
        InvalidInput: a column is missing, or not of the view's type.
        NotFound: there is no such online store, or the view was never pushed there.
        StoreUnavailable: it does not answer.
    """
    definition = pushed_definition(view, address)
    key = entity_key(definition, entity)
    if key is None:
        raise InvalidInput(
            f"the entity {dict(entity)} is not accepted: a part of it is null, so it has no features"
        )
    with open_writer(address) as writer:
        return writer.delete(view, key, time.time_ns() // 1000, definition.ttl)


def pushed_definition(view: str, address: str) -> Definition:
    """The definition with which a view was pushed.

    Raises:
        NotFound: there is no such online store, or the view was never pushed there.
        StoreUnavailable: it does not answer.
    """
    with closing(open_values(address, WAIT)) as values:
        definition = values.definition(view)
    if definition is None:
        raise NotFound(
            f"the online store {hide_password(address)} has no feature view {view}: it was never pushed there"
        )
    return Definition.from_json(definition)


@contextmanager
def open_writer(address: str) -> Iterator[Writer]:
    """Open the online store at an address for writing.

    Raises:
        InvalidInput: the address is not accepted.
        ExtraMissing: Redis' client is not installed.
        StoreUnavailable: it does not answer, or another writer holds it for half a minute.
    """
    writer = RedisWriter(address) if is_redis(address) else SqliteWriter(Path(address))
    try:
        yield writer
    finally:
        writer.close()
