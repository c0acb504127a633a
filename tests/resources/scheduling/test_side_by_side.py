"""Schedulers side by side: the cache of each equals the catalog, whatever the others do in between."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halving.trial.messages import ReachedRung, ReturnedEarly
from resources.catalog import Catalog
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.leases import DOUBT_SECONDS, LEASE_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.state_cache import StateCache
from resources.scheduling.sweeps import SweepEnded, extend_sweep, pause_sweep, resume_sweep
from resources.search.decide import Continue
from resources.search.suggestions.suggester import Suggestion
from tests.clock import Clock
from tests.properties import examples
from tests.resources.scheduling.players import catalog_at, open_new, spec_of


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


def give_order(table: Table, scheduler: Scheduler, amount: float) -> None:
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
    "order": give_order,
    "suggest ahead": lambda table, scheduler, amount: scheduler.suggest_ahead(1 + int(2 * amount)),
    "fail to commit": fail_to_commit,
}


@pytest.fixture(scope="module")
def shared_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    with closing(catalog_at(f"sqlite:///{tmp_path_factory.mktemp('shared_catalog')}/catalog.db")) as catalog:
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


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(sorted(ACTIONS)), st.floats(0, 1)), min_size=5, max_size=30
)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_a_long_lived_scheduler_sees_what_a_new_one_sees_after_any_step_of_any_other(
    shared_catalog: Catalog, steps: list[tuple[int, str, float]]
) -> None:
    clock = Clock()
    sweep = open_new(shared_catalog, spec_of("tpe", max_trials=9, max_retries=1, max_preemptions=1))
    table = Table([Scheduler(shared_catalog, sweep, clock) for _ in range(3)], clock)
    for who, action, amount in steps:
        with suppress(Superseded, SweepEnded):
            ACTIONS[action](table, table.schedulers[who], amount)
        assert read_memory(table.schedulers[who]) == read_memory(Scheduler(shared_catalog, sweep, clock))
    assert [read_memory(scheduler) for scheduler in table.schedulers] == [
        read_memory(Scheduler(shared_catalog, sweep, clock))
    ] * 3


def test_a_look_that_fails_halfway_is_begun_anew(
    shared_catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = open_new(shared_catalog, spec_of("asha"))
    scheduler, other = (Scheduler(shared_catalog, sweep) for _ in range(2))
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
