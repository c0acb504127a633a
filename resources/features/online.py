"""Pushing a view's latest known features online, as they were computed: nothing is computed here.

And deleting an entity's.

An older event never replaces a newer one, whoever pushes when: values are compared by event, known time and
generation where they are kept, in one transaction of SQLite's or one script of Redis'. What a day made again
has no more is withdrawn, and what was known before it takes its place (:mod:`resources.features.withdrawn`).
Pushing again changes nothing.
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
from resources.features.online_rows import latest_rows, packed
from resources.features.online_writer import WAIT, Writer
from resources.features.partitions import partitions
from resources.features.redis_writer import RedisWriter
from resources.features.sqlite_writer import SqliteWriter
from resources.features.view import FeatureView
from resources.features.withdrawn import Push, settle_new, withdraw


@dataclass(frozen=True)
class Pushed:
    """What a push did.

    Attributes:
        entities: how many had a latest row.
        taken: of how many it was newer than what was online.
        withdrawn: of how many what was online is in no day any more.
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
    """Push what is known of each entity at a time.

    Args:
        address: ``redis://…``, or a file, which is made.
        until: only rows that are known by then, with a time zone (default: this moment).
        days: only rows whose events are of these days (default: all that may still count); what is withdrawn
            is of these days, too.

    Raises:
        InvalidInput: the view was pushed with another definition, or ``until`` has no time zone.
        NotFound: the view has not been materialised.
        StoreUnavailable: the online store does not answer.
    """
    if until is not None and until.tzinfo is None:
        raise InvalidInput(
            f"until = {until} is not accepted: it has no time zone; give one, for example datetime.now(UTC)"
        )
    moment = time.time_ns() // 1000 if until is None else micros(until)
    known = partitions(store, view.name, view.version)
    if not known:
        raise NotFound(
            f"the feature view {view.key} has not been materialised in {store.root}; halving features "
            "materialize does it"
        )
    ttl = view.ttl_micros
    first = date.min if ttl is None else day_of(moment - ttl)
    last = day_of(moment)
    in_reach = [one for one in known if first <= one.day <= last]
    chosen = [one for one in in_reach if days is None or one.day in days]
    newest = known[-1].definition
    entities = taken = 0
    with open_writer(address) as writer:
        if not writer.has(view.key):
            settle_new(writer, view.key, known)
        definition = writer.define(view.definition(dict(newest.entity), newest.inputs))
        layout = Layout(definition.features)
        with engine(f"pushing the feature view {view.key}", memory) as (connection, _):
            for batch in latest_rows(connection, store, definition, chosen, moment):
                taken += writer.put(view.key, packed(definition, layout, batch), ttl)
                entities += batch.num_rows
            withdrawn = withdraw(
                connection, store, writer, definition, Push(chosen, in_reach, moment, ends_now=until is None)
            )
    return Pushed(entities, taken, withdrawn)


def delete(view: str, entity: Mapping[str, Any], address: str) -> bool:
    """Delete an entity's features online, of a view (``clicks@1``); whether there were some.

    A push of what happened until now does not bring them back; what happens from now on counts again. So
    something stays: the entity's key, and when it was deleted. Days in the store, from which features are
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
    """A view as it was pushed.

    Raises:
        NotFound: there is no such online store, or the view was never pushed there.
        StoreUnavailable: it does not answer.
    """
    with closing(open_values(address, WAIT)) as values:
        found = values.definition(view)
    if found is None:
        raise NotFound(
            f"the online store {hide_password(address)} has no feature view {view}: it was never pushed there"
        )
    return Definition.from_json(found)


@contextmanager
def open_writer(address: str) -> Iterator[Writer]:
    """The online store at an address, to be written.

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
