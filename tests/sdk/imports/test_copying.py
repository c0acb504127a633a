"""What an import makes of any tool's run: summaries, names of files, and counts of what was taken."""

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from halving.errors import StoreError
from halving.imports.copying import copy_run
from halving.imports.foreign_run import Artifact, ForeignRun, Piece, PieceBuilder, Position, Skipped, iso
from halving.ingest.media import Text
from halving.query.curve_stats import fill_last
from halving.query.run_details import details_of
from halving.query.runs import read_run
from halving.records.amendments import amend
from halving.store.store import Store
from tests.sdk.imports.copies import small_disk

TIME = 1_700_000_000_000


def pieces_of(count: int, position: Position) -> Iterator[Piece]:
    """Points of ``loss``, two in a piece, and a text with each."""
    for step in range(position.get("log", [0, 0])[1], count, 2):
        builder = PieceBuilder(Skipped(), position)
        for each in range(step, min(step + 2, count)):
            builder.add("loss", each, TIME + each, 1.0 / (each + 1))
        builder.add_media(f"text-{step}", "note", step, TIME, Text(str(step)))
        builder.position["log"] = [0, min(step + 2, count)]
        yield builder.take()


def foreign(
    points: int = 4, summary: dict[str, float] | None = None, names: tuple[str, ...] = (), **changes: Any
) -> ForeignRun:
    files = [
        Artifact(name, lambda name=name: contextlib.nullcontext(name.encode(errors="replace")), None)
        for name in names
    ]  # type: ignore[misc]
    fields: dict[str, Any] = {
        "project": "p",
        "run": "r",
        "origin": {"tool": "wandb", "run": "theirs", "path": "/data"},
        "params": {"lr": 0.1, "model": {"layers": 2}},
        "tags": {"team": "vision"},
        "started": iso(TIME),
        "ended": None,
        "status": "finished",
        "pieces": partial(pieces_of, points),
        "artifacts": lambda: iter(files),
        "summary": summary or {},
    }
    return ForeignRun(**fields | changes)


def copy(store: Store, run: ForeignRun) -> tuple[str, dict[str, int], dict[str, int]]:
    """The outcome, what was taken and what was not."""
    skipped = Skipped()
    taken = Counter[str]()
    outcome = copy_run(store, run, skipped, taken).outcome
    return outcome, dict(+taken), dict(skipped.reasons)


def last_values(store: Store) -> dict[str, float]:
    (info,) = fill_last(store, [read_run(store, "p", "r")])
    metrics = {
        key: value["last"] for key, value in details_of(store, read_run(store, "p", "r"))["metrics"].items()
    }
    assert json.dumps(metrics, sort_keys=True) == json.dumps(dict(sorted(info.summary.items())))
    return info.summary


@pytest.mark.parametrize(
    ("points", "summary", "expected"),
    [
        (4, {}, {"loss": 0.25}),
        (4, {"best": 0.9}, {"loss": 0.25, "best": 0.9}),
        (4, {"loss": 0.1}, {"loss": 0.1}),
        (4, {"loss": 0.25}, {"loss": 0.25}),
        (0, {"best": 0.9}, {"best": 0.9}),
        (0, {"best": -math.inf, "acc/max": 1.0}, {"best": -math.inf, "acc/max": 1.0}),
        (1, {"größe": 3.0}, {"loss": 1.0, "größe": 3.0}),
        (0, {}, {}),
        (3, {"a": 1e308, "b": 5e-324, "c": -0.0}, {"loss": 1 / 3, "a": 1e308, "b": 5e-324, "c": -0.0}),
        (2, {"loss": math.inf}, {"loss": math.inf}),
    ],
)
def test_a_summary_is_the_last_value_of_its_metrics_beside_the_points(
    store: Store, points: int, summary: dict[str, float], expected: dict[str, float]
) -> None:
    outcome, taken, left = copy(store, foreign(points, summary))
    assert (outcome, left, taken.get("summary values", 0)) == ("new", {}, len(summary))
    assert last_values(store) == expected
    assert copy(store, foreign(points, summary)) == ("unchanged", {}, {})


def test_a_summary_that_changed_later_is_counted_and_that_of_a_grown_run_taken(store: Store) -> None:
    copy(store, foreign(4, {"best": 0.9, "odd": math.nan}))
    assert copy(store, foreign(4, {"best": 0.9, "odd": math.nan})) == ("unchanged", {}, {})
    reason = "runs' later changes of summaries: how an attempt ended never changes here"
    assert copy(store, foreign(4, {"best": 0.95})) == ("unchanged", {}, {reason: 1})
    outcome, taken, left = copy(store, foreign(6, {"best": 0.95}))
    assert (outcome, taken, left) == ("continued", {"points": 2, "texts": 1, "summary values": 1}, {})
    values = last_values(store)
    assert (values["best"], values["loss"]) == (0.95, 1 / 6)


@pytest.mark.parametrize("stopped", range(9))
def test_an_import_that_is_stopped_at_any_write_ends_with_the_whole_summary(
    store: Store, stopped: int
) -> None:
    run = foreign(6, {"best": 0.9, "loss": 0.05}, ("a/b", "c"))
    taken = Counter[str]()
    with small_disk(stopped), pytest.raises(StoreError, match="the disk is full"):
        copy_run(store, run, Skipped(), taken)
    copy_run(store, run, Skipped(), taken)
    assert last_values(store) == {"best": 0.9, "loss": 0.05}
    assert taken["points"] == 6, "each counted once, also where the import ended with an error"
    assert (taken["params"], taken["tags"], taken["artifacts"], taken["summary values"]) == (2, 1, 2, 2)
    assert len(read_run(store, "p", "r").attempts) == 1


def test_a_run_whose_tags_were_changed_here_goes_on(store: Store) -> None:
    copy(store, foreign(4))
    amend(store, "runs/project=p/r", lambda before: {**before, "tags": {"mine": "true"}})
    assert copy(store, foreign(6))[0] == "continued"
    assert last_values(store) == {"loss": 1 / 6}
    assert read_run(store, "p", "r").tags == {"mine": "true"}


def test_files_are_artifacts_by_their_paths_and_unusable_names_are_counted(
    store: Store,
) -> None:
    names = ("a b.txt", "deep/a b.txt", "deep-a b.txt", "#1 é.md", "A", "a", "[x]?.pt", "%2e")
    wrong = ("../up", "/etc/passwd", "a\nb", "\udc80", "a//b", "", "x" * 2_001)
    _, taken, left = copy(store, foreign(0, names=names + wrong))
    assert taken["artifacts"] == len(names)
    assert left == {
        "files whose names have control characters, are no UTF-8 or longer than 2,000 bytes": len(wrong)
    }
    rows = details_of(store, read_run(store, "p", "r"))["artifacts"]
    assert {row["name"]: store.get_blob(row["digest"]).decode() for row in rows} == {
        name: name for name in names
    }
    assert copy(store, foreign(0, names=names))[:2] == ("unchanged", {})
