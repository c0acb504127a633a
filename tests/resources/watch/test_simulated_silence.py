"""Ten thousand hours of runs: nobody is called for a run that logs, and each silence is told in time."""

import random
from bisect import bisect_right
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from resources.analysis.run_index.entry import _progress, next_look
from resources.watch import LOOK_SECONDS
from resources.watch.silence import silent_seconds

HOUR = 3_600.0
HOURS_OF_RUN = 10
RUNS = 1_000
MAX_LATE = 60.0
MAX_TO_STORE = 5.0
"""Seconds until a logged point is in the store."""


@dataclass
class Training:
    """A simulated run: when it went on, by the true time, and what the clock of its machine is off by.

    Attributes:
        steps: times at which the store had more of it: points, or the begin of another attempt.
        attempts: the attempt that each step belongs to.
        skew: seconds; the time of its start in its record is wrong by it.
        limit: seconds that it may be silent.
    """

    steps: list[float]
    attempts: list[int]
    skew: float
    limit: float


def simulate_training(chance: random.Random) -> Training:
    """Log at a pace of its own, with pauses up to the limit, some beyond it, and resumes after crashes."""
    limit = chance.uniform(60.0, HOUR / 2)
    pace = min(chance.uniform(1.0, 120.0), (limit - MAX_TO_STORE) / 2)
    training = Training([0.0], [1], chance.uniform(-24, 24) * HOUR, limit)
    time = 0.0
    while True:
        dice = chance.random()
        step = pace * chance.uniform(0.5, 1.5)
        attempt = training.attempts[-1]
        if dice < 0.002:
            step = limit * chance.uniform(1.1, 4.0)
        elif dice < 0.02:
            step = max(step, limit - 2 * MAX_TO_STORE)
        elif dice < 0.03:
            attempt += 1
        time += step
        if time >= HOURS_OF_RUN * HOUR:
            return training
        training.steps.append(max(training.steps[-1] + 0.1, time + chance.uniform(0, MAX_TO_STORE)))
        training.attempts.append(attempt)


def simulate_downtimes(chance: random.Random) -> list[tuple[float, float]]:
    """When the server is down: once in three hours, for seconds up to an hour."""
    downtimes = []
    time = chance.expovariate(1 / (3 * HOUR))
    while time < HOURS_OF_RUN * HOUR:
        end = time + chance.choice([5.0, 60.0, 600.0, HOUR]) * chance.uniform(0.5, 1.0)
        downtimes.append((time, end))
        time = end + chance.expovariate(1 / (3 * HOUR))
    return downtimes


def find_alerts(training: Training, downtimes: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """When the run was told to be silent, each with when the index had last seen it go on."""
    alerts = []
    row = {"status": "running", "started": training.skew, "ended": None, "seconds": None}
    down = iter(downtimes)
    begin, end = next(down, (1e18, 1e18))
    now = 0.0
    place = -1
    progress = ""
    progressed_at = 0.0
    told_of = -1.0
    while now < HOURS_OF_RUN * HOUR:
        if now >= begin:
            now = end  # the next look is that of the server that comes after it
            begin, end = next(down, (1e18, 1e18))
            continue
        latest = bisect_right(training.steps, now) - 1
        if latest != place:
            place = latest
            attempt = SimpleNamespace(number=training.attempts[place], epoch=None)
            ends = {"loss": SimpleNamespace(points=place)}
            digest = _progress(SimpleNamespace(attempts=[attempt]), ends)  # type: ignore[arg-type]
            if digest != progress:
                progress = digest
                progressed_at = now
        if silent_seconds(progressed_at, now) > training.limit and told_of != progressed_at:
            told_of = progressed_at
            alerts.append((now + LOOK_SECONDS, training.steps[place]))
        now = next_look(row, now)
    return alerts


@pytest.mark.slow
def test_no_run_that_logs_is_told_and_each_silence_is_told_in_time() -> None:
    chance = random.Random(35)
    silences = 0
    for _ in range(RUNS):
        training = simulate_training(chance)
        downtimes = simulate_downtimes(chance)
        alert_times = {last: time for time, last in find_alerts(training, downtimes)}
        for begin, end in zip(training.steps, [*training.steps[1:], HOURS_OF_RUN * HOUR], strict=True):
            if end - begin <= training.limit:
                assert begin not in alert_times, f"told though it logged after {end - begin:.0f} s"
                continue
            due = begin + training.limit + MAX_LATE
            is_watched = all(until < begin or since > due for since, until in downtimes)
            if is_watched and due < end:
                silences += 1
                assert alert_times[begin] <= due
    assert silences > 500
