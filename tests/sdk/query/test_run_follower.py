"""Following a run: whatever is drained and compacted meanwhile, and wherever one follower ends and another
goes on, nothing is lost.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from halving import InvalidInput, Store
from halving.errors import StoreUnavailable
from halving.ingest.metric_writer import MetricWriter
from halving.maintenance.compaction import compact
from halving.metrics.parquet_reader import Files
from halving.query.run_follower import BEGINNING, News, RunFollower, position_of
from tests.properties import examples
from tests.sdk.metric_files import write_segment

EVERYTHING = 1_000_000


class Received:
    """What a client keeps: at each step the value of the highest attempt that came last."""

    def __init__(self) -> None:
        self.points: dict[tuple[str, int], tuple[int, float]] = {}
        self.count = 0

    def add(self, news: News) -> None:
        assert news.complete
        for attempt, key, steps, _, values in news.points:
            self.count += len(steps)
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                if attempt >= self.points.get((key, step), (0, 0.0))[0]:
                    self.points[key, step] = (attempt, value)


def handed_over(store: Store, follower: RunFollower) -> RunFollower:
    """Another follower, which goes on from what the first has written down."""
    return RunFollower(store, "p", "r", position_of(json.loads(json.dumps(follower.position))))


def test_what_is_in_the_journal_is_given_once_and_not_again_when_it_is_drained(any_store: Store) -> None:
    follower = RunFollower(any_store, "p", "r")
    writer = MetricWriter(any_store, "p", "r", 1, delay=3600)
    received = Received()
    for step in range(100):
        writer.append({"a": float(step), "b": 1.0}, step, 5_000_000)
        if step % 10 == 0:
            assert writer.flush()
        received.add(follower.look({"a"}, EVERYTHING))
        assert received.points == {("a", at): (1, float(at)) for at in range(step + 1)}
    assert writer.close()
    writer.release()
    received.add(follower.look({"a"}, EVERYTHING))
    compact(any_store, "p", "r")
    received.add(follower.look({"a"}, EVERYTHING))
    assert received.count == 100


def test_from_now_on_is_neither_what_was_drained_nor_what_was_logged_before(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    for step in range(10):
        writer.append({"a": 1.0}, step, 0)
        if step == 5:
            assert writer.flush()
    follower = RunFollower(store, "p", "r")
    assert follower.look({"a"}, EVERYTHING).points == []
    writer.append({"a": 2.0}, 10, 0)
    (points,) = follower.look({"a"}, EVERYTHING).points
    assert (points.attempt, points.key, points.steps.tolist(), points.values.tolist()) == (
        1,
        "a",
        [10],
        [2.0],
    )
    assert writer.close()
    writer.release()


STEPS = st.lists(
    st.sampled_from(["log", "log", "log", "flush", "compact", "look", "hand over", "end"]), max_size=40
)


@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
# the rest of a log segment is only in the store
@example(steps=["log", "log", "look", "log", "flush", "hand over"])
def test_nothing_is_lost_whatever_happens_between_two_looks(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("follow"))
    attempt = 1
    step = 0
    received = Received()
    logged: dict[tuple[str, int], tuple[int, float]] = {}
    # So small that a log segment is filled, drained and deleted between two looks.
    writer = MetricWriter(store, "p", "r", attempt, delay=3600, log_segment_bytes=1 << 12)
    follower = RunFollower(store, "p", "r", BEGINNING)
    for action in [*steps, "look", "end", "look", "look"]:
        if action == "log":
            for _ in range(37):
                writer.append({"a": float(step)}, step, 0)
                logged["a", step] = (attempt, float(step))
                step += 1
        elif action == "flush":
            assert writer.flush()
        elif action == "compact":
            compact(store, "p", "r")
        elif action == "look":
            received.add(follower.look({"a"}, EVERYTHING))
        elif action == "hand over":
            follower = handed_over(store, follower)
        else:
            assert writer.close()
            writer.release()
            # a resumed run logs some steps again
            attempt = attempt + 1
            step = max(0, step - 50)
            writer = MetricWriter(store, "p", "r", attempt, delay=3600, log_segment_bytes=1 << 12)
    assert received.points == logged
    assert writer.close()
    writer.release()


def test_segments_that_were_seen_in_the_journal_are_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = Files.segment
    monkeypatch.setattr(
        Files, "segment", lambda self, path, *rest: read.append(Path(path).name) or real(self, path, *rest)
    )
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    follower = RunFollower(store, "p", "r")
    for step in range(5):
        writer.append({"a": 1.0}, step, 0)
        follower.look({"a"}, EVERYTHING)
        assert writer.flush()
        follower.look({"a"}, EVERYTHING)
    assert read == []
    assert writer.close()
    writer.release()


def test_a_machine_without_the_journal_follows_by_the_segments(store: Store) -> None:
    follower = RunFollower(store, "p", "r")
    received = Received()
    for sequence in range(5):
        write_segment(store, "r", 1, sequence, [("a", sequence, 0, float(sequence))])
        received.add(follower.look({"a"}, EVERYTHING))
        follower = handed_over(store, follower)
    assert received.count == 5
    assert sorted(received.points) == [("a", step) for step in range(5)]


def test_what_is_more_than_the_limit_is_left_out_and_said(store: Store) -> None:
    follower = RunFollower(store, "p", "r")
    write_segment(store, "r", 1, 0, [("a", step, 0, math.nan) for step in range(100)])
    news = follower.look({"a"}, 99)
    assert (news.points, news.complete) == ([], False)
    write_segment(store, "r", 1, 1, [("a", 100, 0, 1.0)])
    news = follower.look({"a"}, 99)
    assert ([part.steps.tolist() for part in news.points], news.complete) == ([[100]], True)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {"a": [0, {}]},
        {"1": 0},
        {"1": [0, {"main": [0]}]},
        {"1": [-7, {}]},
        {"1": [0, {"main": [0, "x"]}]},
    ],
)
def test_what_is_no_position_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="is not accepted"):
        position_of(wrong)


def test_the_look_after_a_failure_of_the_store_says_that_something_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    follower = RunFollower(store, "p", "r")
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    writer.append({"a": 1.0}, 1, 5_000_000)
    with monkeypatch.context() as away:
        away.setattr(store, "names", lambda folder: (_ for _ in ()).throw(StoreUnavailable(folder)))
        with pytest.raises(StoreUnavailable):
            follower.look({"a"}, EVERYTHING)
    assert not follower.look({"a"}, EVERYTHING).complete
    assert follower.look({"a"}, EVERYTHING).complete
    assert writer.close()
    writer.release()
