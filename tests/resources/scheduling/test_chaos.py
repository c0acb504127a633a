"""A search survives the death of its processes: killed after any event, it decides and finds the same as if
nothing had happened.
"""

import multiprocessing
import random
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from halving.trial.messages import ReachedRung, ReturnedEarly
from resources.catalog import AttemptRow, Catalog, RungResultRow
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.leases import DOUBT_SECONDS, LEASE_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.state_cache import StateCache
from resources.scheduling.sweeps import SweepEnded, extend_sweep, open_sweep, pause_sweep, resume_sweep
from resources.search.decide import Continue, ranking
from resources.search.state import Rung, Status
from resources.search.suggestions.suggester import Suggestion
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import SMALL, snapshot_row
from tests.clock import Clock
from tests.postgres import Postgres
from tests.properties import examples
from tests.resources.scheduling import killed_processes
from tests.resources.scheduling.killed_processes import NEVER, opened_catalog, serve

STRATEGIES: dict[str, dict[str, Any]] = {
    "asha": {"asha": {"sampler": "random", "max_budget": 4, "reduction_factor": 2}},
    "tpe": {
        "asha": {"sampler": "tpe", "options": {"n_startup_trials": 3}, "max_budget": 4, "reduction_factor": 2}
    },
    "hyperband": {"hyperband": {"sampler": "random", "max_budget": 4, "reduction_factor": 2}},
    "median": {"median": {"sampler": "random", "max_budget": 3, "min_trials": 2}},
    "audit": {"asha": {"sampler": "random", "max_budget": 4, "reduction_factor": 2, "audit": 0.5}},
}


def spec_of(strategy: str, **changes: Any) -> SweepSpec:
    """Seven trials, whose workers may be lost as often as they like."""
    fields = {"strategy": STRATEGIES[strategy], "max_trials": 7, "max_preemptions": 1000, "seed": 4}
    return parse_spec({**SMALL, **fields, **changes})


def open_new(catalog: Catalog, spec: SweepSpec) -> str:
    """A new sweep, whatever others of its spec there are."""
    return open_sweep(catalog, spec, "sha256:s", driver=secrets.token_hex(8), commit=None).id


_processes = multiprocessing.get_context("forkserver")


class Player:
    """A process of a sweep as the test sees it: it is started when it is needed, and again after it was
    killed.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._process: Any = None

    def order(self, order: str, sweep: str, now: float, kill_at: int = 0) -> str | None:
        """Have an order carried out; its answer, or None when it was killed on the way."""
        self.send(order, sweep, now, kill_at)
        return self.answer()

    def send(self, order: str, sweep: str, now: float, kill_at: int = 0) -> None:
        if self._process is None:
            self._orders, other = _processes.Pipe()
            self._process = _processes.Process(
                target=serve, args=(other, self._url, self._folder), daemon=True
            )
            self._process.start()
            other.close()
        self._orders.send((order, sweep, now, kill_at))

    def answer(self) -> str | None:
        try:
            answer: str = self._orders.recv()
        except EOFError:
            self._process.join()
            assert self._process.exitcode == -signal.SIGKILL
            self._process = None
            return None
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


Players = Callable[[str], Player]


@pytest.fixture(scope="module", autouse=True)
def _fork_server() -> Iterator[None]:
    """A process has one fork server: that of the tests before knows none of this, and holds what would only
    make each fork slower.
    """
    server = forkserver._forkserver
    server._stop()
    before = server._preload_modules
    server.set_forkserver_preload(["pytest", killed_processes.__name__])
    yield
    server._stop()
    server.set_forkserver_preload(before)


@pytest.fixture
def players(tmp_path: Path) -> Iterator[Players]:
    made: list[Player] = []

    def player(url: str) -> Player:
        made.append(Player(url, tmp_path))
        return made[-1]

    yield player
    for scheduler in made:
        scheduler.close()


def catalog_at(url: str) -> Catalog:
    catalog = opened_catalog(url)
    with catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return catalog


def lost(player: Player, sweep: str, now: float) -> float:
    """When the leases of who was killed have run out, that was seen, and the doubt has passed."""
    now += LEASE_SECONDS + 1
    player.order("look", sweep, now, NEVER)
    return now + DOUBT_SECONDS


def played_by_a_worker(worker: Player, sweep: str, kill_at: int) -> bool:
    """Drive a sweep to its end, with the worker killed at an event of its own; whether it came to that
    event.
    """
    now = 1000.0
    killed = False
    answer = worker.order("pull", sweep, now, kill_at)
    while answer != "Finish":
        if answer is None:
            now = lost(worker, sweep, now)
            killed = True
        answer = worker.order("pull", sweep, now, NEVER if killed else 0)
    return killed


def played_by_a_sensor_and_runs(
    killable: str, sensor: Player, runs: Player, sweep: str, kill_at: int
) -> bool:
    """The same with a sensor that launches and a process that runs, of which one is killed."""
    now = 1000.0
    killed = False
    armed = {"launch": NEVER, "claim": NEVER, killable: kill_at}
    while True:
        for order, player in (("launch", sensor), ("claim", runs)):
            answer = player.order(order, sweep, now, armed.pop(order, 0))
            if answer is None:
                now = lost(player, sweep, now)
                killed = True
                break  # the sensor's next tick finds out
            if answer == "Finish":
                return killed


def read_search(catalog: Catalog, sweep: str) -> dict[str, Any]:
    """All that a search has decided and found, besides attempts and times."""
    scheduler = Scheduler(catalog, sweep)
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        results = session.scalars(
            select(RungResultRow)
            .where(RungResultRow.sweep == sweep)
            .order_by(RungResultRow.trial, RungResultRow.rung)
        )
        trials = catalog.trials(session, sweep)
        return {
            "sweep": (row.status, row.control),
            "trials": [
                (trial.params, trial.status, trial.failures, trial.audited, trial.checkpoint)
                for trial in trials
            ],
            "rungs": [
                (r.trial, r.rung, r.epochs, r.value, r.metrics, r.violation, r.checkpoint, r.decision)
                for r in results
            ],
            "ranking": [(trial.number, rung) for trial, rung in ranking(scheduler.state())],
        }


def check_work(catalog: Catalog, folder: Path, sweep: str, kills: int) -> None:
    """Nothing that was kept was trained again: a kill costs the one epoch that was under way, and every
    attempt has its end.
    """
    lines = [
        line for line in (folder / "epochs.log").read_text().splitlines() if line.startswith(f"{sweep}.")
    ]
    again = {line: count for line, count in Counter(lines).items() if count > 1}
    assert sum(again.values()) - len(again) <= kills
    with catalog.read() as session:
        attempts = list(
            session.scalars(
                select(AttemptRow)
                .where(AttemptRow.sweep == sweep)
                .order_by(AttemptRow.trial, AttemptRow.attempt)
            )
        )
        trials = catalog.trials(session, sweep)
    assert all(attempt.outcome and attempt.ended_at for attempt in attempts)
    assert sum(trial.preemptions for trial in trials) <= kills
    for trial in trials:
        assert [attempt.attempt for attempt in attempts if attempt.trial == trial.number] == list(
            range(1, trial.attempt + 1)
        )


@dataclass
class Table:
    """Schedulers of one sweep in one process, and the trials that somebody works on."""

    schedulers: list[Scheduler]
    clock: Clock
    running: list[Assignment] = field(default_factory=list)

    def some(self, amount: float) -> list[Assignment]:
        """One of the running trials, if there is any."""
        return self.running[int(amount * 0.999 * len(self.running)) :][:1]


def work(table: Table, scheduler: Scheduler, amount: float) -> None:
    if isinstance(assignment := scheduler.next_work("w"), Assignment):
        table.running.append(assignment)


def launch_and_claim(table: Table, scheduler: Scheduler, amount: float) -> None:
    scheduler.next_work(None)
    for waiting in scheduler.unclaimed_attempts()[:1]:
        if amount < 0.2:
            scheduler.report_failed_launch(waiting, "no image")
        elif amount < 0.8:
            table.running.append(scheduler.claim(waiting.trial, "run"))


def reach(table: Table, scheduler: Scheduler, amount: float) -> None:
    for taken in table.some(amount):
        table.running.remove(taken)
        if isinstance(
            scheduler.report_rung(taken, ReachedRung(taken.granted, {"score": amount}, "sha256:c"), 1.0),
            Continue,
        ):
            table.running.append(replace(taken, rung=taken.rung + 1, granted=taken.ladder[taken.rung + 1]))


def end(table: Table, scheduler: Scheduler, amount: float) -> None:
    for taken in table.some(amount):
        table.running.remove(taken)
        if amount < 0.25:
            scheduler.report_crash(taken, "boom", 1.0)
        elif amount < 0.5:
            scheduler.report_failure(taken, "NaN", 1.0, None)
        elif amount < 0.75:
            scheduler.release(taken, 1.0)
        else:
            scheduler.report_return(taken, ReturnedEarly(1, {"score": amount}, "sha256:c"), 1.0)


def lose(table: Table, scheduler: Scheduler, amount: float) -> None:
    table.clock.now += LEASE_SECONDS * 2 * amount
    scheduler.requeue_lost()
    table.clock.now += DOUBT_SECONDS * 2 * amount
    scheduler.requeue_lost()


def order(table: Table, scheduler: Scheduler, amount: float) -> None:
    if amount < 0.5:
        (pause_sweep if amount < 0.2 else resume_sweep)(scheduler.catalog, scheduler.id)
    else:
        extend_sweep(scheduler.catalog, scheduler.id, scheduler.state().max_trials + 1)


def fail_to_commit(table: Table, scheduler: Scheduler, amount: float) -> None:
    with suppress(OSError), scheduler._transactions.deciding():
        scheduler._transactions.add(Suggestion({"x": amount}))
        raise OSError("the disk is full")


ACTIONS: dict[str, Callable[[Table, Scheduler, float], object]] = {
    "work": work,
    "launch": launch_and_claim,
    "reach": reach,
    "reach again": reach,
    "end": end,
    "lose": lose,
    "order": order,
    "suggest ahead": lambda table, scheduler, amount: scheduler.suggest_ahead(1 + int(2 * amount)),
    "fail to commit": fail_to_commit,
}


@pytest.fixture(scope="module")
def interleaved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    with closing(catalog_at(f"sqlite:///{tmp_path_factory.mktemp('interleaved')}/catalog.db")) as catalog:
        yield catalog


def read_memory(scheduler: Scheduler) -> dict[str, Any]:
    """All that a scheduler has in memory of its sweep, brought up to date."""
    with scheduler._transactions.reading():
        cache = scheduler._transactions.cache
        state = scheduler._transactions.state
        return {
            **{name: value for name, value in vars(state).items() if name != "rungs_from_the_top"},
            "details": list(cache.details),
            "revision": cache.revision,
            "sweep": (cache.status, cache.sampler_attrs),
            "trials": list(state.trials),
        }


def same_wherever_killed(
    catalog: Catalog, spec: SweepSpec, folder: Path, play: Callable[[str, int], bool]
) -> int:
    """Play the sweep whole, and once more for each of its events with a kill there; how many there are."""
    whole = open_new(catalog, spec)
    assert not play(whole, NEVER)
    expected = read_search(catalog, whole)
    assert expected["sweep"] == ("evaluating", "run")
    assert len(expected["trials"]) == spec.max_trials
    kill_at = 0
    killed = True
    while killed:
        kill_at += 1
        sweep = open_new(catalog, spec)
        killed = play(sweep, kill_at)
        assert read_search(catalog, sweep) == expected, f"killed at event {kill_at}"
        check_work(catalog, folder, sweep, kills=1)
    return kill_at - 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tpe", "hyperband", "median", "audit"])
def test_a_search_whose_worker_is_killed_at_any_event_decides_and_finds_the_same(
    strategy: str, tmp_path: Path, players: Players
) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    worker = players(url)
    with closing(catalog_at(url)) as catalog:
        play = partial(played_by_a_worker, worker)
        assert same_wherever_killed(catalog, spec_of(strategy), tmp_path, play) > 50


@pytest.mark.slow
def test_the_same_holds_on_postgres(postgres: Postgres, tmp_path: Path, players: Players) -> None:
    url = postgres.database(f"t{secrets.token_hex(6)}")
    worker = players(url)
    with closing(catalog_at(url)) as catalog:
        play = partial(played_by_a_worker, worker)
        assert same_wherever_killed(catalog, spec_of("asha"), tmp_path, play) > 50


@pytest.mark.slow
@pytest.mark.parametrize("killable", ["launch", "claim"])
def test_a_search_whose_sensor_or_run_is_killed_at_any_event_finds_the_same(
    killable: str, tmp_path: Path, players: Players
) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    sensor = players(url)
    runs = players(url)
    with closing(catalog_at(url)) as catalog:
        play = partial(played_by_a_sensor_and_runs, killable, sensor, runs)
        assert same_wherever_killed(catalog, spec_of("tpe"), tmp_path, play) > 20


@pytest.mark.slow
def test_concurrent_workers_that_are_killed_at_random_lose_and_repeat_nothing(
    any_catalog: str, tmp_path: Path, players: Players
) -> None:
    """Which trials are promoted depends on who was faster; that the best half is, and that no rung is trained
    twice, does not.
    """
    events = random.Random(7)
    now = 1000.0
    kills = 0
    workers = [players(any_catalog) for _ in range(3)]
    spec = spec_of("tpe", max_trials=15)
    with closing(catalog_at(any_catalog)) as catalog:
        sweep = open_new(catalog, spec)
        answers: list[str | None] = [None]
        while any(answer != "Finish" for answer in answers):
            for worker in workers:
                worker.send("pull", sweep, now, events.randrange(2, 10) if kills < 20 else NEVER)
            answers = [worker.answer() for worker in workers]
            if died := sum(answer is None for answer in answers):
                kills = kills + died
                now = lost(workers[0], sweep, now)
        assert kills > 5
        state = Scheduler(catalog, sweep).state()
        assert [trial.number for trial in state.trials] == list(range(15))
        assert {trial.status for trial in state.trials} <= {Status.PAUSED, Status.COMPLETED, Status.FAILED}
        assert not any(_is_in_top(rung) for rung in state.rungs_from_the_top)
        check_work(catalog, tmp_path, sweep, kills)


def _is_in_top(rung: Rung) -> bool:
    """Whether a paused trial is among the better half of the rung."""
    return any(sum(other < place for other in rung.results) < len(rung.results) // 2 for place in rung.paused)


# Schedulers side by side: the cache of each equals the catalog, whatever the others do in between.

STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(sorted(ACTIONS)), st.floats(0, 1)), min_size=5, max_size=30
)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_a_long_lived_scheduler_sees_what_a_new_one_sees_after_any_step_of_any_other(
    interleaved: Catalog, steps: list[tuple[int, str, float]]
) -> None:
    clock = Clock()
    sweep = open_new(interleaved, spec_of("tpe", max_trials=9, max_retries=1, max_preemptions=1))
    table = Table([Scheduler(interleaved, sweep, clock) for _ in range(3)], clock)
    for who, action, amount in steps:
        with suppress(Superseded, SweepEnded):
            ACTIONS[action](table, table.schedulers[who], amount)
        assert read_memory(table.schedulers[who]) == read_memory(Scheduler(interleaved, sweep, clock))
    assert [read_memory(scheduler) for scheduler in table.schedulers] == [
        read_memory(Scheduler(interleaved, sweep, clock))
    ] * 3


def test_a_look_that_fails_halfway_is_begun_anew(
    interleaved: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = open_new(interleaved, spec_of("asha"))
    scheduler, other = (Scheduler(interleaved, sweep) for _ in range(2))
    table = Table([scheduler, other], Clock())
    for _ in range(3):
        work(table, other, 0.5)
        reach(table, other, 0.5)
    put = StateCache.put
    calls = []

    def failing(cache: StateCache, *changed: Any) -> None:
        calls.append(changed)
        if len(calls) == 2:
            raise OSError("the disk is gone")
        put(cache, *changed)

    with monkeypatch.context() as patched:
        patched.setattr(StateCache, "put", failing)
        with pytest.raises(OSError, match="the disk is gone"):
            scheduler.state()
    assert read_memory(scheduler) == read_memory(other)
