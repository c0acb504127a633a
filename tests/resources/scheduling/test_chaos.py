"""A search whose processes are killed after any event decides and finds the same."""

import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from resources.catalog import AttemptRow, Catalog, RungResultRow
from resources.scheduling.leases import DOUBT_SECONDS, LEASE_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.search.decide import ranking
from resources.search.state import Rung, Status
from resources.sweep_spec import SweepSpec
from tests.postgres import Postgres
from tests.resources.scheduling import killed_processes
from tests.resources.scheduling.killed_processes import NEVER
from tests.resources.scheduling.players import Player, Players, catalog_at, open_new, spec_of


@pytest.fixture(scope="module", autouse=True)
def _fork_server() -> Iterator[None]:
    """Give this module a fork server of its own: another one lacks the preloads, and forks more slowly."""
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


def lost(player: Player, sweep: str, now: float) -> float:
    """When the leases of who was killed have run out, that was seen, and the doubt has passed."""
    now += LEASE_SECONDS + 1
    player.order("look", sweep, now, NEVER)
    return now + DOUBT_SECONDS


def played_by_a_worker(worker: Player, sweep: str, kill_at: int) -> bool:
    """Drive a sweep to its end, killing its worker at this event; return whether the event came."""
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
    """Check that each kill cost only the epoch that was under way, and that every attempt has an end."""
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
    """The best half is promoted, and no rung is trained twice, however fast the workers are."""
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
