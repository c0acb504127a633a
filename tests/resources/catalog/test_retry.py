"""A Postgres that restarts, is full, or breaks connections: workers wait for it, and nothing is lost or done
twice.
"""

import os
import random
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url, select
from sqlalchemy.exc import OperationalError

from halving.trial.messages import ReachedRung
from resources.catalog import AttemptRow, Catalog, RungResultRow, TrialRow, retry
from resources.scheduling import leases
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.search.decide import Continue, Finish, Retry
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row
from tests.cut_line import CutLine
from tests.ports import free_port
from tests.postgres import INSTALLED, Postgres
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]
_WORKER = "worker"  # threads' names begin with it
# Postgres' words for having no connection to spare
_FULL = ("too many clients", "remaining connection slots")
pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(not INSTALLED, reason="needs Postgres' initdb: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="halving-restarts-"))
    server = Postgres(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def url(server: Postgres) -> str:
    return server.database(f"t{secrets.token_hex(6)}")


def open_small_sweep(url: str, spec: SweepSpec) -> str:
    with closing(Catalog(url)) as catalog:
        with catalog.write() as session:
            session.add(snapshot_row("sha256:s"))
        return open_sweep(catalog, spec, "sha256:s", driver="job", commit=None).id


class Crew:
    """Workers in threads, each with a catalog of its own, who train a sweep to its end and say what they
    do.
    """

    def __init__(self, url: str, sweep: str, workers: int, seconds_to_train: float = 0.2) -> None:
        self._url = url
        self._sweep = sweep
        self._seconds = seconds_to_train
        self.trained: list[tuple[int, int]] = []
        self.at_work: Counter[int] = Counter()
        self.overlaps: list[int] = []
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=_WORKER)
        self._done = [self._pool.submit(self._work, f"pod-{number}:1") for number in range(workers)]

    def join(self) -> None:
        with self._pool:
            for done in self._done:
                done.result()

    @property
    def busy(self) -> bool:
        return not any(done.done() for done in self._done)

    def _work(self, name: str) -> None:
        with closing(Catalog(self._url)) as catalog:
            scheduler = Scheduler(catalog, self._sweep)
            while not isinstance(assignment := scheduler.next_work(name), Finish):
                if isinstance(assignment, Assignment):
                    with self._beating(scheduler, assignment):
                        self._train(scheduler, assignment)
                else:
                    time.sleep(0.05)

    def _train(self, scheduler: Scheduler, assignment: Assignment) -> None:
        for epochs in assignment.ladder[assignment.rung :]:
            self.at_work[assignment.trial] += 1
            if self.at_work[assignment.trial] > 1:
                self.overlaps.append(assignment.trial)
            time.sleep(self._seconds)
            self.trained.append((assignment.trial, epochs))
            # Before it is told: the answer may get lost, and once the rung is recorded another worker may go
            # on with the trial.
            self.at_work[assignment.trial] -= 1
            value = assignment.params["x"] + 1 / epochs
            if not isinstance(
                scheduler.report_rung(
                    assignment, ReachedRung(epochs, {"score": value}, f"sha256:{epochs}"), 0.2
                ),
                Continue,
            ):
                break

    @contextmanager
    def _beating(self, scheduler: Scheduler, assignment: Assignment) -> Iterator[None]:
        closed = threading.Event()

        def beat() -> None:
            while not closed.wait(leases.HEARTBEAT_SECONDS):
                try:
                    scheduler.heartbeat(assignment)
                except (OperationalError, Superseded):
                    continue

        thread = threading.Thread(target=beat)
        thread.start()
        yield
        closed.set()
        thread.join()


def check(url: str, sweep: str, crew: Crew, trials: int) -> None:
    """Every rung was trained once and recorded once, by one worker at a time, and no trial was taken from
    anybody.
    """
    assert crew.overlaps == []
    assert {rung: count for rung, count in Counter(crew.trained).items() if count > 1} == {}
    with closing(Catalog(url)) as catalog, catalog.read() as session:
        assert catalog.sweep(session, sweep).status == "evaluating"
        rows = catalog.trials(session, sweep)
        results = session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep)).all()
        attempts = session.scalars(select(AttemptRow).where(AttemptRow.sweep == sweep)).all()
    assert len(rows) == trials
    assert {(row.trial, row.epochs) for row in results} == set(crew.trained)
    assert [(row.failures, row.preemptions, row.error) for row in rows] == [(0, 0, None)] * trials
    assert {attempt.outcome for attempt in attempts} <= {"pause", "complete"}


def refused_processes(caplog: pytest.LogCaptureFixture, *reasons: str) -> set[str | None]:
    """The workers' threads that try again because the database does not answer, for one of these reasons, or
    for any.
    """
    messages = [
        (record.threadName, record.getMessage())
        for record in caplog.records
        if "the catalog does not answer" in record.getMessage()
    ]
    return {
        name
        for name, said in messages
        if name and name.startswith(_WORKER) and any(reason in said for reason in reasons or ("",))
    }


def test_a_restarted_database_costs_no_rung_and_no_attempt(
    server: Postgres, url: str, small_spec: Spec, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = open_small_sweep(url, small_spec(max_trials=18))
    crew = Crew(url, sweep, 3)
    for trained, noticed in ((1, 0), (7, 3), (13, 1)):
        wait_for(lambda count=trained: len(crew.trained) >= count, 60, f"{trained} rungs")
        assert crew.busy
        caplog.clear()
        server.stop()
        wait_for(
            lambda count=noticed: len(refused_processes(caplog)) >= count,
            60,
            f"{noticed} workers that are refused",
        )
        server.start()
    crew.join()
    check(url, sweep, crew, 18)


def test_a_database_without_a_connection_to_spare_is_waited_for(
    server: Postgres, url: str, small_spec: Spec, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = open_small_sweep(url, small_spec(max_trials=9))
    server.stop()
    server.start("-c max_connections=20")
    crew = Crew(url, sweep, 3)
    taken = []
    wait_for(lambda: crew.trained, 60, "a rung")
    psycopg_url = url.replace("+psycopg", "")
    with ExitStack() as closed, psycopg.connect(psycopg_url, autocommit=True) as killer:
        # What the workers have is taken from them, and whoever is faster than they gets it.
        while len(taken) < 15 or len(refused_processes(caplog, *_FULL)) < 3:
            assert crew.busy
            killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'halving'"
            )
            try:
                while True:
                    taken.append(closed.enter_context(psycopg.connect(psycopg_url)))
            except psycopg.OperationalError:
                time.sleep(0.02)
        assert crew.busy
    crew.join()
    check(url, sweep, crew, 9)


def test_connections_broken_at_any_moment_cost_no_rung_and_no_attempt(
    server: Postgres, url: str, small_spec: Spec
) -> None:
    sweep = open_small_sweep(url, small_spec(max_trials=120))
    crew = Crew(url, sweep, 6, seconds_to_train=0.02)
    chance = random.Random(0)
    broken = 0
    psycopg_url = url.replace("+psycopg", "")
    some = (
        "FROM pg_stat_activity WHERE application_name = 'halving' AND datname = current_database() AND "
        "random() < 0.5"
    )
    with psycopg.connect(psycopg_url, autocommit=True) as killer:
        while crew.busy and broken < 300:
            broken += len(killer.execute(f"SELECT pg_terminate_backend(pid) {some}").fetchall())
            time.sleep(chance.random() * 0.05)  # at another moment of their transactions
    crew.join()
    check(url, sweep, crew, 120)


def test_after_an_outage_longer_than_the_lease_the_living_keep_their_trials(
    server: Postgres, url: str, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.5)
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.3)
    monkeypatch.setattr(leases, "DOUBT_SECONDS", 4.0)
    sweep = open_small_sweep(url, small_spec(max_trials=6))
    with closing(Catalog(url)) as catalog:
        dead = Scheduler(catalog, sweep).next_work("dead:1")
    assert isinstance(dead, Assignment)
    crew = Crew(url, sweep, 3)
    wait_for(lambda: sum(crew.at_work.values()) == 3, 60, "three workers, each at a trial")
    server.stop()
    time.sleep(4.0)  # the length of the outage, which is what is tested
    server.start()
    crew.join()
    with closing(Catalog(url)) as catalog, catalog.read() as session:
        assert {trial.number: trial.preemptions for trial in catalog.trials(session, sweep)} == {
            number: int(number == dead.trial) for number in range(6)
        }
    assert crew.overlaps == []
    assert {rung: count for rung, count in Counter(crew.trained).items() if count > 1} == {}


@pytest.mark.parametrize("reads", ["alembic_version", "sweeps"])
def test_a_worker_whose_connection_breaks_while_it_starts_connects_again(
    server: Postgres, url: str, small_spec: Spec, reads: str
) -> None:
    sweep = open_small_sweep(url, small_spec())
    psycopg_url = url.replace("+psycopg", "")
    waiting = "FROM pg_stat_activity WHERE application_name = 'halving' AND wait_event_type = 'Lock'"

    def start() -> object:
        with closing(Catalog(url)) as catalog:
            return Scheduler(catalog, sweep).next_work("pod:1")

    with (
        psycopg.connect(psycopg_url) as holder,
        psycopg.connect(psycopg_url, autocommit=True) as killer,
        ThreadPoolExecutor(1) as pool,
    ):
        holder.execute(f"LOCK TABLE {reads} IN ACCESS EXCLUSIVE MODE")
        started = pool.submit(start)
        wait_for(
            lambda: killer.execute(f"SELECT pg_terminate_backend(pid) {waiting}").fetchall(),
            60,
            f"a read of {reads}",
        )
        wait_for(lambda: killer.execute(f"SELECT pid {waiting}").fetchall(), 60, f"another read of {reads}")
        holder.rollback()
        assert isinstance(started.result(60), Assignment)


def test_what_was_committed_although_its_answer_got_lost_is_not_done_again(
    url: str, small_spec: Spec
) -> None:
    sweep = open_small_sweep(url, small_spec(max_trials=3))
    with closing(CutLine(url)) as line, closing(Catalog(line.url)) as catalog:
        scheduler = Scheduler(catalog, sweep)

        def over_a_cut_line(call: Callable[[], object]) -> object:
            before = line.cuts
            line.cut_after_the_next_commit()
            answer = call()
            assert line.cuts == before + 1
            return answer

        first = over_a_cut_line(lambda: scheduler.next_work("pod:1"))
        assert isinstance(first, Assignment)
        assert scheduler.running() == 1
        over_a_cut_line(lambda: scheduler.report_rung(first, ReachedRung(1, {"score": 0.5}, "sha256:c"), 1.0))
        waiting = scheduler.next_work(None)
        assert isinstance(waiting, Assignment)
        second = over_a_cut_line(lambda: scheduler.claim(waiting.trial, "pod:2"))
        assert second == waiting
        assert isinstance(over_a_cut_line(lambda: scheduler.report_crash(waiting, "boom", 1.0)), Retry)
        with catalog.read() as session:
            rows = [
                (row.number, row.failures, row.seconds)
                for row in session.scalars(select(TrialRow).order_by(TrialRow.number))
            ]
            results = session.scalars(select(RungResultRow)).all()
            attempts = session.scalars(select(AttemptRow).order_by(AttemptRow.trial)).all()
    assert rows == [(0, 0, 1.0), (1, 1, 1.0)]
    assert [(row.trial, row.rung) for row in results] == [(0, 0)]
    assert [(row.trial, row.attempt, row.outcome) for row in attempts] == [(0, 1, "pause"), (1, 1, "retry")]


def test_a_connection_that_ended_while_it_was_idle_is_replaced_unseen(server: Postgres, url: str) -> None:
    with closing(Catalog(url)) as catalog:
        server.stop()
        server.start()
        with catalog.read() as session:  # nobody tries this one again
            assert catalog.trials(session, "none") == []


@pytest.fixture
def pooled_url(url: str, tmp_path: Path) -> Iterator[str]:
    """The same database through a PgBouncer in transaction mode, which has two connections for all."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    folder = Path(tempfile.mkdtemp(prefix="halving-pool-"))
    if program is None:
        pytest.skip("needs PgBouncer: apt-get install pgbouncer")
    there = make_url(url)
    port = free_port()
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
    }
    lines = [f"{name} = {value}" for name, value in {**settings, "default_pool_size": 2}.items()]
    databases = f"[databases]\n{there.database} = host={there.host} port={there.port} user={there.username}\n"
    (folder / "pgbouncer.ini").write_text(f"{databases}[pgbouncer]\n" + "\n".join(lines) + "\n")
    folder.chmod(0o755)
    as_other = (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    )
    process = subprocess.Popen([*as_other, program, "-q", str(folder / "pgbouncer.ini")], cwd="/")
    yield str(there.set(port=port))
    process.terminate()
    process.wait()
    shutil.rmtree(folder)


def test_many_workers_share_few_connections_through_a_pooler(
    pooled_url: str, url: str, small_spec: Spec
) -> None:
    sweep = open_small_sweep(pooled_url, small_spec(max_trials=12))
    crew = Crew(pooled_url, sweep, 6)
    wait_for(lambda: crew.trained, 60, "a rung")
    with psycopg.connect(url.replace("+psycopg", "")) as looking:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = "
            "current_database()"
            " AND pid != pg_backend_pid()"
        )
        assert looking.execute(query).fetchone() in ((1,), (2,))
    crew.join()
    check(pooled_url, sweep, crew, 12)


def test_a_worker_holds_one_connection(server: Postgres, url: str, small_spec: Spec) -> None:
    sweep = open_small_sweep(url, small_spec())
    with closing(Catalog(url)) as catalog, psycopg.connect(url.replace("+psycopg", "")) as looking:
        scheduler = Scheduler(catalog, sweep)
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda number: scheduler.next_work(f"w{number}"), range(6)))
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name "
            "= 'halving'"
        )
        assert looking.execute(query).fetchone() == (1,)


def test_who_is_refused_for_good_is_not_made_to_wait(server: Postgres, url: str) -> None:
    began = time.monotonic()
    with pytest.raises(OperationalError, match=r'database "nowhere" does not exist'):
        Catalog(f"{url.rpartition('/')[0]}/nowhere")
    assert time.monotonic() - began < 5


def test_workers_that_lost_the_database_at_once_reconnect_at_different_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    restarted = 0.2
    workers = 200

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    def connect() -> float:
        if now < restarted:
            raise psycopg.OperationalError("connection refused")
        return now

    connected = []
    with monkeypatch.context() as clock:
        clock.setattr(time, "monotonic", lambda: now)
        clock.setattr(time, "sleep", pass_time)
        for _ in range(workers):
            now = 0.0
            connected.append(retry.connect_with_retry(connect))
    peak = max(sum(first <= other < first + 0.1 for other in connected) for first in connected)
    assert peak < 0.7 * workers, "so many connect within a tenth of a second"


def test_workers_that_started_together_do_not_replace_their_connections_together(url: str) -> None:
    catalogs = [Catalog(url) for _ in range(8)]
    lifetimes = {catalog.engine.pool._recycle for catalog in catalogs}  # type: ignore[attr-defined]
    for catalog in catalogs:
        catalog.close()
    assert len(lifetimes) > 4
    assert all(1800 <= seconds <= 3600 for seconds in lifetimes)


def test_connecting_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "CONNECT_SECONDS", 1.0)
    began = time.monotonic()
    with pytest.raises(OperationalError, match="Connection refused"):
        Catalog("postgresql+psycopg://tests@127.0.0.1:1/halving")
    assert 1.0 <= time.monotonic() - began < 5
