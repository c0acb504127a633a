"""Dagster at the size of a cluster: runs requested and launched a second, and sensor ticks."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.dagster_ticks import HANDED_OUT, IN_PROGRESS, ON_A_CLUSTER, RUNNING, STARTED, ticks
from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child, last_words
from benchmarks.results import Part, Table, number

RUNS = 120  # launched at each number of threads
API_SECONDS = 0.02
_OURS = "launched"
_DAGSTERS = "Dagster's own storage: launched"
# threads, runs in progress already
STAGES = ((_OURS, 1, 0), (_OURS, 4, 0), (_DAGSTERS, 16, 0), (_OURS, 16, 0), (_OURS, 16, IN_PROGRESS))
_WAIT_SECONDS = 150.0  # seconds for one block: of what is slower, as many are counted as came
_MIN_RUNS = 10  # runs that a rate is made of
_Result = TypeVar("_Result")
_TEXT = f"""
Dagster's own daemon, and its event log, runs and schedules on Postgres; the catalog is on the same server,
all on this machine. First the sensor `start_trials` finds one sweep with {RUNS * len(STAGES)} free slots and
requests as many runs, which are queued. Then the daemon is started again with 1, 4 and 16 threads
(`run_queue: dequeue_num_workers`) and launches {RUNS} of them each time, at last with {IN_PROGRESS:,} other
runs in progress. The launcher starts nothing: it waits {1000 * API_SECONDS:.0f} ms, as long as a cluster's
API takes to create a Job. *Launched* counts from the first run's start event to the last one's; where that
takes longer than {_WAIT_SECONDS:.0f} s, those are counted that came. The storage is that of `deploy/`, which
uses its connections again; beside it one block with Dagster's own. *Connections* are those of Dagster's
processes that the database saw in the block, with the daemon's start and end. At the end a few runs are
really made, in processes of their own, with a trainable that does nothing.
"""
_TICKS = f"""
One tick of each sensor, called in a process of its own, with {IN_PROGRESS:,} runs in progress on Dagster's
side. The sweeps are spread evenly: each has {STARTED:,} known trials, {RUNNING} of them running, and place
for one more. *First*: the process has seen none of the sweeps; *next*: it has, and since then every trial
that was handed out has been claimed and {HANDED_OUT} have ended their rung and given their slots free, which
is what 10,000 running trials with a rung every ten minutes do between two ticks. A tick may take 60 s.
"""


def measure(setting: Setting) -> Part:
    """Measure runs requested and launched a second, what a run leaves behind, and the ticks."""
    from tests.postgres import INSTALLED, Postgres

    part = Part("dagster", "Runs and ticks with 10,000 trials running", _TEXT)
    if not INSTALLED:
        part.missing.append("Postgres: no initdb on this machine")
        return part
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = Postgres(Path(folder), durable=True)
        try:
            backend = _Instance(setting.work, server.database("dagster"), server.database("halving"))
            part.tables.append(_runs(part, backend, setting))
            for what, block in (
                ("real runs", lambda: _make_runs(backend, setting.choose(1, 6))),
                ("ticks", lambda: ticks(backend, setting, _TICKS.strip())),
            ):
                if table := _try(part, what, block):
                    part.tables.append(table)
        finally:
            server.stop()
    return part


def _runs(part: Part, backend: "_Instance", setting: Setting) -> Table:
    """Request runs, then launch them; each block reports its own failure."""
    stages = setting.choose(STAGES[1:2], STAGES)
    runs = setting.choose(3, RUNS)
    table = Table(["what", "threads", "runs in progress", "runs", "runs/s", "connections"], [], "Runs")
    sizes = {"sweeps": 1, "started": 1, "running": 0, "more": runs * len(stages)}
    in_child("benchmarks.catalog_fill:fill", url=backend.catalog, driver="sensors", **sizes)
    if cells := _try(part, "requests", lambda: _request_runs(backend, runs * len(stages))):
        table.rows.append(["requested and queued", "", "0", *cells])
    backend.end_sweeps()
    for kind, threads, others in stages:
        others = setting.choose(min(others, 5), others)
        what = f"{kind}: {threads} threads, {others:,} runs in progress"
        if cells := _try(part, what, partial(_launch_runs, backend, kind == _OURS, threads, others, runs)):
            table.rows.append([kind, str(threads), f"{others:,}", *cells])
    return table


def _try(part: Part, what: str, block: Callable[[], _Result]) -> _Result | None:
    """Run a block; one that breaks is named on the page with its reason, and the others go on."""
    try:
        return block()
    except Exception as error:  # noqa: BLE001
        # Dagster's processes, Postgres or the driver: whatever it is, it is this block's
        part.missing.append(f"{what}: {type(error).__name__}: {last_words(str(error))}")
        return None


class _Instance:
    """A home for Dagster with its storage on Postgres, and a catalog beside it."""

    def __init__(self, folder: Path, dagster: str, catalog: str) -> None:
        self.home = folder / "dagster"
        self.catalog = catalog
        self._dagster = dagster.replace("+psycopg", "")
        self.home.mkdir(parents=True)
        self._own_connections = 0
        self._log = self.home / "daemon.log"
        self.variables = {
            "DAGSTER_HOME": str(self.home),
            "HALVING_ROOT": str(folder / "root"),
            "HALVING_CATALOG": catalog,
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }

    @contextmanager
    def daemon(
        self, *, max_runs: int, threads: int = 1, launches: bool = False, pooled: bool = True
    ) -> Iterator[None]:
        """Dagster's daemon with at most ``max_runs`` runs, on ``deploy/``'s storage or Dagster's own."""
        launcher = {"module": "benchmarks.no_launch", "class": "NoLaunch", "config": {"seconds": API_SECONDS}}
        # Dagster speaks to no other
        database = {"postgres_url": self._dagster.replace("postgresql", "postgresql+psycopg2")}
        ours = {"module": "pipelines.postgres_storage", "class": "PooledPostgresStorage", "config": database}
        queue: dict[str, Any] = {"dequeue_use_threads": threads > 1}
        if threads > 1:
            queue["dequeue_num_workers"] = threads
        config: dict[str, Any] = {
            "storage": {"postgres": database},
            "concurrency": {"runs": {"max_concurrent_runs": max_runs}},
            "run_queue": queue,
            "sensors": {"use_threads": True, "num_workers": 4, "num_submit_workers": 8},
            "run_monitoring": {"enabled": False},
            "telemetry": {"enabled": False},
        }
        variables = {**os.environ, **self.variables}
        if pooled:
            config["storage"] = {"custom": ours}
        if not launches:
            config["run_launcher"] = launcher
            variables |= ON_A_CLUSTER
        (self.home / "dagster.yaml").write_text(json.dumps(config))
        command = [
            str(Path(sys.executable).with_name("dagster-daemon")),
            "run",
            "-m",
            "pipelines.definitions",
            "-d",
            str(CHECKOUT),
        ]
        with self._log.open("w") as log:
            # A session of its own, so that its code server and its runs end with it, however it ended.
            process = subprocess.Popen(
                command, cwd=CHECKOUT, env=variables, stdout=log, stderr=log, start_new_session=True
            )
            self._daemon = process
            try:
                yield
            finally:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def ask(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Query Dagster's database."""
        import psycopg

        self._own_connections += 1
        with psycopg.connect(self._dagster, autocommit=True) as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []

    def wait(self, query: str, wanted: int, *, minimum: int | None = None) -> int:
        """Wait until the query counts as many; return the count.

        Args:
            minimum: the count that suffices when the time is over.

        Raises:
            ChildFailed: fewer have come, or the daemon has ended; the message holds the end of what it said.
        """
        until = time.monotonic() + _WAIT_SECONDS
        while (count := self._count(query)) < wanted:
            ended = self._daemon.poll()
            if ended is None and time.monotonic() < until:
                time.sleep(0.5)
                continue
            if ended is None and minimum is not None and count >= minimum:
                break
            why = f"after {_WAIT_SECONDS:.0f} s"
            if ended is not None:
                why = f"when the daemon ended with exit status {ended}"
            raise ChildFailed(f"{count} of {wanted} {why}; {self.complaint()}")
        return count

    def connections(self) -> int:
        """How many connections of Dagster's the database has seen so far."""
        ((sessions,),) = self.ask("SELECT sessions FROM pg_stat_database WHERE datname = current_database()")
        return int(sessions) - self._own_connections

    def complaint(self) -> str:
        """The last error that the daemon, or a run of it, logged."""
        return _complaint(self._log.read_text())

    def end_sweeps(self) -> None:
        """End the sweeps, so that the sensors' work for them is not measured with the launches."""
        import psycopg

        with psycopg.connect(self.catalog.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("UPDATE sweeps SET status = 'finished'")

    def _count(self, query: str) -> int:
        import psycopg

        try:
            return int(self.ask(query)[0][0])
        except psycopg.errors.UndefinedTable:  # the daemon is still making its tables
            return 0


def _request_runs(backend: _Instance, wanted: int) -> list[str]:
    before = backend.connections()
    with backend.daemon(max_runs=0):
        count = backend.wait("SELECT count(*) FROM runs WHERE status = 'QUEUED'", wanted, minimum=_MIN_RUNS)
    ((seconds,),) = backend.ask(
        "SELECT extract(epoch FROM max(create_timestamp) - min(create_timestamp)) FROM runs"
    )
    return [f"{count:,}", number((count - 1) / float(seconds)), f"{backend.connections() - before:,}"]


def _launch_runs(backend: _Instance, pooled: bool, threads: int, others: int, runs: int) -> list[str]:
    if others:
        _clone_runs(backend, others)
    ((newest,),) = backend.ask("SELECT coalesce(max(id), 0) FROM event_logs")
    ((running,),) = backend.ask("SELECT count(*) FROM runs WHERE status IN ('STARTING', 'STARTED')")
    starting = f"FROM event_logs WHERE dagster_event_type = 'PIPELINE_STARTING' AND id > {int(newest)}"
    before = backend.connections()
    with backend.daemon(max_runs=running + runs, threads=threads, pooled=pooled):
        backend.wait(f"SELECT count(*) {starting}", runs, minimum=_MIN_RUNS)
    ((count, seconds),) = backend.ask(
        f"SELECT count(*), extract(epoch FROM max(timestamp) - min(timestamp)) {starting}"
    )
    return [f"{count:,}", number((count - 1) / float(seconds)), f"{backend.connections() - before:,}"]


def _clone_runs(backend: _Instance, count: int) -> None:
    """Copy a starting run as runs in progress: 10,000 real ones would need 10,000 processes."""
    columns = "snapshot_id, pipeline_name, mode, partition, partition_set, create_timestamp, update_timestamp"
    backend.ask(
        "CREATE TABLE clones AS SELECT gen_random_uuid()::text AS new FROM generate_series(1, %s)", count
    )
    backend.ask("CREATE TABLE cloned AS SELECT run_id AS old FROM runs WHERE status = 'STARTING' LIMIT 1")
    backend.ask(
        f"INSERT INTO runs (run_id, status, run_body, start_time, {columns}) SELECT new, 'STARTED', "
        "replace(replace(run_body, old, new), '\"STARTING\"', '\"STARTED\"'), extract(epoch FROM now()), "
        f"{columns} "
        "FROM runs, clones, cloned WHERE run_id = old"
    )
    backend.ask(
        "INSERT INTO run_tags (run_id, key, value) SELECT new, key, CASE key WHEN 'dagster/run_key' THEN "
        "new ELSE value END "
        "FROM run_tags, clones, cloned WHERE run_id = old"
    )
    backend.ask("VACUUM ANALYZE")


def _make_runs(backend: _Instance, wanted: int) -> Table:
    """Make real runs of a sweep of their own."""
    in_child(
        "benchmarks.catalog_fill:fill",
        url=backend.catalog,
        sweeps=1,
        started=2,
        running=0,
        more=wanted,
        driver="sensors",
        first=1,
    )
    ((before,),) = backend.ask("SELECT coalesce(max(id), 0) FROM runs")
    ((running,),) = backend.ask("SELECT count(*) FROM runs WHERE status IN ('STARTING', 'STARTED')")
    # left over where launching was slow
    backend.ask("UPDATE runs SET status = 'CANCELED' WHERE status = 'QUEUED'")
    ended = (
        f"SELECT count(*) FROM runs WHERE id > {int(before)} AND status IN ('SUCCESS', 'FAILURE', 'CANCELED')"
    )
    with backend.daemon(max_runs=running + 2, launches=True):
        backend.wait(ended, wanted, minimum=1)
    rows = backend.ask(
        "SELECT r.status, r.end_time - r.start_time, r.start_time - extract(epoch FROM "
        "r.create_timestamp), count(*), sum(length(e.event)) "
        "FROM runs r JOIN event_logs e USING (run_id) WHERE r.id > %s AND r.end_time IS NOT NULL GROUP BY "
        "r.id ORDER BY r.id",
        before,
    )[:wanted]
    if failed := [row for row in rows if row[0] != "SUCCESS"]:
        raise ChildFailed(
            f"{len(failed)} of {len(rows)} real runs ended as {failed[0][0]}: {backend.complaint()}"
        )
    cells = [
        number(statistics.median(float(value) for value in column))
        for column in list(zip(*rows, strict=True))[1:]
    ]
    header = [
        "runs, two at a time",
        "from start to end, s",
        "from request to start, s",
        "rows in the event log",
        "bytes of events",
    ]
    return Table(header, [[str(len(rows)), *cells]], "Real runs, medians")


def _complaint(log: str) -> str:
    """The last error in a log, or else its last line."""
    errors = [
        line
        for line in log.splitlines()
        if any(word in line for word in ("ERROR", "Error:", "Exception:", "CRITICAL"))
    ]
    return last_words(errors[-1] if errors else log) or "it said nothing"
