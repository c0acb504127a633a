"""State that all requests of a server share: store, catalog, settings, caches and queues."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from halving import Store
from resources.analysis.system_points import KeptSystemPoints
from resources.analysis.training_run import SYSTEM_METRICS
from resources.catalog import Catalog
from resources.catalog.opening import open_catalog
from server.curves.service import CurveService
from server.fair_queue import FairQueue
from server.identity.secret_keys import signing_key
from server.ingest.memory_budget import MemoryBudget
from server.ingest.points import IngestedPoints
from server.live.hub import Hub
from server.media.record_cache import RecordCache
from server.publisher import Publisher
from server.settings import Settings
from server.store_threads import StoreThreads
from server.study_cache import StudyCache

CATALOG_PATIENCE = 2.0  # seconds; people and probes are better told at once that it is away
# Connections to Postgres, shared by the server's threads.
_CONNECTIONS = 8
_ACCESS_CONNECTIONS = 2
# Concurrent queries of the index of runs, in all and of one token.
INDEX_QUERIES = 6
INDEX_QUERIES_EACH = 3
PAGES = 2
PAGES_EACH = 1
"""Pages that are built at a time, in all and for one token: each reads many curves."""

LOOPS = 16
LOOPS_EACH = 4
"""Concurrent requests of external loops, in all and of one study, whose decisions are made one by one anyway.

On SQLite a study has one: more threads would only keep the interpreter's lock from the one that decides.
"""
# Requests of one study that may wait, and seconds that they wait for their turn.
LOOPS_WAITING = 2_000
LOOP_SECONDS = 5.0

AGENT_CALLS = 4
AGENT_CALLS_EACH = 2
"""Concurrent calls of agents' tools, in all and of one token: each may read millions of points."""

INGEST_THREADS = 8
INGEST_SECONDS = 20.0
"""Batches, records and blobs that are written into the store at a time, and seconds that others wait for
their turn.
"""
INGEST_BYTES = 256 << 20
"""Bytes of batches and records in memory at a time; what comes beyond that is refused, and sent again."""


@dataclass(frozen=True)
class State:
    """A server's own state; nothing in it is lost with the process.

    Attributes:
        access_catalog: the same catalog by connections of their own: to find out who asks, and to record it,
            waits for no route's queries.
        index_queue: questions to the index of runs take turns.
        page_queue: so do pages that are built to be shared.
        loop_queue: external loops take turns, those of one study among themselves.
        agent_queue: agents' calls take turns.
        signing_key: what sessions and addresses are signed with; the same in all replicas.
        studies: those that external loops train.
        records: of runs' media, artifacts and checkpoints, as far as they were read.
        system_points: of training runs, as far as they were read.
        ingested: the points that clients send.
        publisher: tells the store what was changed of models.
        ingest_memory: for what they send.
        ingest_threads: write that into the store.
    """

    settings: Settings
    store: Store
    catalog: Catalog
    access_catalog: Catalog
    index_queue: FairQueue
    page_queue: FairQueue
    loop_queue: FairQueue
    agent_queue: FairQueue
    signing_key: str = field(repr=False)
    curves: CurveService
    live: Hub
    studies: StudyCache = field(repr=False)
    records: RecordCache = field(repr=False)
    system_points: KeptSystemPoints = field(repr=False)
    ingested: IngestedPoints = field(repr=False)
    publisher: Publisher = field(repr=False)
    ingest_memory: MemoryBudget = field(default_factory=lambda: MemoryBudget(INGEST_BYTES), repr=False)
    store_threads: StoreThreads = field(default_factory=StoreThreads, repr=False)
    ingest_threads: StoreThreads = field(
        default_factory=lambda: StoreThreads(INGEST_THREADS, INGEST_SECONDS), repr=False
    )

    @classmethod
    def of(cls, settings: Settings) -> "State":
        store = Store(settings.root)
        catalog, access_catalog = (
            open_catalog(store, settings.catalog_url, patience=CATALOG_PATIENCE, connections=count)
            for count in (_CONNECTIONS, _ACCESS_CONNECTIONS)
        )
        loops_each = 1
        if catalog.engine.dialect.name == "postgresql":
            loops_each = LOOPS_EACH
        return cls(
            settings=settings,
            store=store,
            catalog=catalog,
            access_catalog=access_catalog,
            index_queue=FairQueue(INDEX_QUERIES, INDEX_QUERIES_EACH),
            page_queue=FairQueue(PAGES, PAGES_EACH),
            loop_queue=FairQueue(LOOPS, loops_each, waiting=LOOPS_WAITING, seconds=LOOP_SECONDS),
            agent_queue=FairQueue(AGENT_CALLS, AGENT_CALLS_EACH),
            signing_key=signing_key(catalog),
            curves=CurveService(store),
            live=Hub(store),
            studies=StudyCache(catalog),
            records=RecordCache(store),
            system_points=KeptSystemPoints(store, SYSTEM_METRICS),
            ingested=IngestedPoints(store),
            publisher=Publisher(store, catalog),
        )

    def close(self) -> None:
        """End what the server has started."""
        self.live.close()
        self.studies.close()
        self.catalog.close()
        self.access_catalog.close()


async def _state(request: Request) -> State:  # a coroutine, so that it waits for none of the server's threads
    state: State = request.app.state.halving
    return state


Shared = Annotated[State, Depends(_state)]
"""In a route's arguments: the server's state."""
