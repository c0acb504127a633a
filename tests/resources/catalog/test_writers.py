"""Writers of one SQLite file: threads of a process take turns, and never meet in SQLite itself."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from resources.catalog import Catalog, statements
from resources.catalog.fair_lock import FairLock
from resources.catalog.pipelined import together
from resources.catalog.retry import is_transient
from tests.waiting import wait_for

NOBODY = {"of_sweep": "none", "of_trial": 0, "of_attempt": 1, "lease_until": 0.0}
SECONDS = 30


@pytest.fixture
def catalogs(tmp_path: Path) -> Iterator[list[Catalog]]:
    """Two of the same file, as a server has.

    Whoever would wait for a lock in SQLite gets an error at once.
    """
    (tmp_path / "other").symlink_to(tmp_path)
    with ExitStack() as stack:
        pair = [
            stack.enter_context(closing(Catalog(f"sqlite:///{folder}/catalog.db")))
            for folder in (tmp_path, tmp_path / "other")
        ]
        for catalog in pair:
            catalog.close()
            event.listen(catalog.engine, "connect", lambda driver, _: driver.execute("PRAGMA busy_timeout=0"))
        yield pair


def by_session(catalog: Catalog) -> None:
    with catalog.write() as session:
        session.execute(text("UPDATE snapshots SET bytes = bytes + 1"))


def by_statements(catalog: Catalog) -> None:
    with catalog.transaction() as connection:
        list(together(connection, [(statements.RENEW_LEASE, NOBODY)], last=True))


def by_one_statement(catalog: Catalog) -> None:
    catalog.at_once(statements.RENEW_LEASE, NOBODY)


def test_threads_write_in_the_order_they_came_and_wait_without_a_connection(
    catalogs: list[Catalog],
) -> None:
    begun: list[str] = []
    for catalog in catalogs:
        event.listen(catalog.engine, "begin", lambda _: begun.append(threading.current_thread().name))
    writes = [(how, catalog) for how in (by_session, by_statements, by_one_statement) for catalog in catalogs]
    threads = [
        threading.Thread(target=how, args=(catalog,), name=str(place))
        for place, (how, catalog) in enumerate(writes)
    ]
    with catalogs[0].write():
        for place, thread in enumerate(threads):
            thread.start()
            wait_for(
                lambda waiting=place + 1: len(catalogs[1]._writers._queue) == 1 + waiting,
                SECONDS,
                "the writer waits",
                every=0.001,
            )  # type: ignore[misc]
        assert [catalog.engine.pool.checkedout() for catalog in catalogs] == [1, 0]  # type: ignore[attr-defined]
        assert catalogs[0].at_once(statements.STATUS, NOBODY) == []  # who reads waits for nobody
    for thread in threads:
        thread.join(SECONDS)
    assert [name for name in begun if name.isdigit()] == [str(place) for place in range(len(writes))]


def test_many_writers_are_all_served_without_one_refusal_by_sqlite(catalogs: list[Catalog]) -> None:
    def write(place: int) -> None:
        (by_session, by_statements, by_one_statement)[place % 3](catalogs[place % 2])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(60)))


def test_a_writer_that_waits_too_long_gets_sqlites_error_and_the_next_go_on(
    tmp_path: Path,
) -> None:
    with closing(Catalog(f"sqlite:///{tmp_path}/catalog.db", patience=0.01)) as catalog:
        with catalog.write(), ThreadPoolExecutor(1) as pool:
            with pytest.raises(OperationalError, match="database is locked") as raised:
                pool.submit(by_session, catalog).result(SECONDS)
            assert is_transient(raised.value)
        by_session(catalog)


def test_whoever_is_interrupted_while_waiting_or_holding_leaves_its_place() -> None:
    lock = FairLock()
    with lock.hold(), lock.hold(0) as mine:
        assert not mine
    with pytest.raises(KeyboardInterrupt), lock.hold():
        raise KeyboardInterrupt
    with lock.hold(0) as mine:
        assert mine
