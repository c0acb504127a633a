"""A summary says in sixty tokens what the curve's points say."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import Store
from halving.cli.main import main
from halving.maintenance.compaction import compact
from halving.maintenance.retention import PointDays, drop_points
from halving.metrics.points import Points
from halving.query.curve_summary import MAX_LETTERS, read_summaries, summarize
from halving.query.directions import guess_direction
from tests.properties import examples
from tests.sdk.query.histories import T0, Logged, put_record, put_segment


def _points(values: list[float], attempts: list[int] | None = None) -> Points:
    count = len(values)
    return Points(
        np.array(attempts or [1] * count, np.int32),
        np.arange(count, dtype=np.int64),
        T0 + np.arange(count, dtype=np.int64) * 1000,
        np.array(values, np.float64),
    )


@given(
    values=st.lists(st.floats(), min_size=1, max_size=300),
    resumed=st.booleans(),
    name=st.sampled_from(["loss", "accuracy", "x"]),
)
@settings(max_examples=examples(200), deadline=None)
def test_numbers_are_those_of_the_points_and_the_text_is_short(
    values: list[float], resumed: bool, name: str
) -> None:
    half = len(values) // 2
    attempts = [1] * half + [1 + resumed] * (len(values) - half)
    summary = summarize(_points(values, attempts), name=name)
    finite = [value for value in values if math.isfinite(value)]
    assert summary.points == len(values)
    assert summary.nonfinite == len(values) - len(finite)
    if finite:
        assert summary.minimum == (values.index(min(finite)), min(finite))
        assert summary.maximum == (values.index(max(finite)), max(finite))
        assert summary.best == {"loss": summary.minimum, "accuracy": summary.maximum, "x": None}[name]
    assert summary.resume_count == (resumed and half > 0)
    text = summary.text()
    assert text.isascii()
    assert len(text) <= MAX_LETTERS
    json.dumps(summary.as_dict())


def test_a_curve_that_became_nan_says_since_when() -> None:
    summary = summarize(_points([1.0, 0.5, math.nan, 0.4, math.inf, math.nan]), name="loss")
    assert (summary.nonfinite, summary.nonfinite_first, summary.nonfinite_to_end) == (3, 2, 4)
    assert "NaN/inf since 4" in summary.text()


def test_a_direction_that_is_asked_for_is_not_called_guessed() -> None:
    points = _points([1.0, 3.0, 2.0])
    assert "best(max) 3@1" in summarize(points, name="loss", direction="maximize").text()
    assert "best(min?) 1@0" in summarize(points, name="val/loss").text()
    assert "min 1@0 max 3@1" in summarize(points, name="width").text()


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("val_loss", "minimize"),
        ("train/Loss", "minimize"),
        ("eval.accuracy", "maximize"),
        ("valAcc", "maximize"),
        ("F1-score", "maximize"),
        ("accuracy_loss", "minimize"),
        ("lr", None),
        ("glossary", None),
    ],
)
def test_the_last_word_that_says_something_decides_the_direction(name: str, direction: str | None) -> None:
    assert guess_direction(name) == direction


def _store(root: Path) -> Store:
    store = Store(root)
    put_record(store, "r")
    first: Logged = [(step, step * 1000, 1 / (1 + step)) for step in range(600)]
    second: Logged = [(step, step * 1000, 0.5 if step == 700 else 0.001) for step in range(500, 1000)]
    put_segment(store, "r", 1, 0, {"loss": first, "acc": [(0, 0, 0.25)]})
    put_segment(store, "r", 2, 0, {"loss": second})
    return store


@pytest.mark.parametrize("compacted", [False, True])
def test_attempts_are_stitched_and_where_they_resumed_is_said(tmp_path: Path, compacted: bool) -> None:
    store = _store(tmp_path)
    if compacted:
        compact(store, "p", "r")
    summaries = read_summaries(store, "p", "r", ["loss", "acc", "none"])
    assert list(summaries) == ["loss", "acc"]
    loss = summaries["loss"]
    assert (loss.points, loss.resumes, loss.last) == (1000, [(500, 2)], (999, 0.001))
    assert [(spike.step, spike.value) for spike in loss.spikes] == [(700, 0.5)]


def test_the_command_says_the_same_as_the_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = _store(tmp_path)
    assert main(["summary", "p/r", "loss", "--root", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    summary = read_summaries(store, "p", "r", ["loss"])["loss"]
    assert printed["curves"]["loss"] == {"text": summary.text(), **json.loads(json.dumps(summary.as_dict()))}
    assert main(["summary", "p/r", "--root", str(tmp_path)]) == 0
    assert summary.text() in capsys.readouterr().out
    assert main(["summary", "p/r", "lss", "--root", str(tmp_path)]) == 1
    assert "did you mean 'loss'" in capsys.readouterr().err


def test_where_points_were_dropped_the_rollups_are_summarized_and_that_is_said(tmp_path: Path) -> None:
    store = _store(tmp_path)
    points = read_summaries(store, "p", "r", ["loss"])["loss"]
    later = datetime.now(UTC) + timedelta(days=10)
    assert drop_points(store, "p", PointDays(7), protected=(), now=later)
    rollups = read_summaries(store, "p", "r", ["loss"])["loss"]
    assert rollups.coarse
    assert "points dropped" in rollups.text()
    assert (rollups.points, rollups.last) == (points.points, points.last)
    assert rollups.minimum is not None
    assert points.minimum is not None
    assert rollups.minimum.value == points.minimum.value
