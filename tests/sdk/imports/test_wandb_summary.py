"""W&B's values of a whole run: its summary, from the log and from the file beside it.

They are there also without a history.
"""

import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.errors import StoreError
from halving.imports.copying import copy_run
from halving.imports.foreign_run import ForeignRun, Skipped
from halving.imports.wandb_folder import read_runs
from halving.imports.wandb_messages import record_class
from halving.query.curve_stats import fill_last
from halving.query.runs import read_run
from tests.sdk.imports.copies import run_import, small_disk
from tests.sdk.imports.wandb_files import (
    STARTED,
    exit_record,
    history_record,
    logged_of,
    run_record,
    summary_record,
    write_run,
)


def last_values(store: Store, run: str = "a") -> dict[str, Any]:
    """A run's metrics by name, as tables and filters have them; NaN as text, which equals itself."""
    (info,) = fill_last(store, [read_run(store, "digits", run)])
    return {key: str(value) if math.isnan(value) else value for key, value in info.summary.items()}


def write(folder: Path, *records: bytes, file: Any = None) -> Path:
    """Write a run ``a`` that ended well, with these records and perhaps a ``wandb-summary.json``."""
    path = write_run(folder, "a", [run_record("a"), *records, exit_record(0)])
    if file is not None:
        (path.parent / "files").mkdir()
        (path.parent / "files" / "wandb-summary.json").write_text(
            file if isinstance(file, str) else json.dumps(file)
        )
    return path


HISTORY = history_record(0, {"loss": 0.75}), history_record(1, {"loss": 0.5})
OWN = {"_step": 1, "_timestamp": STARTED + 1.5, "_runtime": 3, "_wandb": {"runtime": 3}}


@pytest.mark.parametrize(
    ("records", "file", "expected"),
    [
        pytest.param([summary_record({"best": 0.9})], None, {"best": 0.9}, id="no history"),
        pytest.param([], {"best": 0.9, **OWN}, {"best": 0.9}, id="neither history nor records"),
        pytest.param([*HISTORY, summary_record({"loss": 0.5})], None, {"loss": 0.5}, id="equals the last"),
        pytest.param([*HISTORY, summary_record({"loss": 0.1})], None, {"loss": 0.1}, id="is not the last"),
        pytest.param(
            [*HISTORY, summary_record({"best": 0.9})],
            None,
            {"loss": 0.5, "best": 0.9},
            id="beside the history",
        ),
        pytest.param(
            [summary_record({"acc": {"max": 0.9}})], None, {"acc/max": 0.9}, id="nested, in one JSON"
        ),
        pytest.param(
            [summary_record({"acc/max": 0.9, "acc/min": 0}, nested=True)],
            None,
            {"acc/max": 0.9, "acc/min": 0.0},
            id="nested, leaf by leaf",
        ),
        pytest.param(
            [summary_record({"acc": {"min": 1, "max": 2}}), summary_record({"acc/max": 3}, nested=True)],
            None,
            {"acc/min": 1.0, "acc/max": 3.0},
            id="a leaf changes",
        ),
        pytest.param(
            [summary_record({"acc": {"min": 1, "max": 2}}), summary_record({"acc": {"mean": 3}})],
            None,
            {"acc/mean": 3.0},
            id="a dict is set anew",
        ),
        pytest.param(
            [summary_record({"best": 0.5}), summary_record({"best": 0.9})],
            None,
            {"best": 0.9},
            id="the later counts",
        ),
        pytest.param(
            [summary_record({"best": 0.5, "b": 1}), summary_record({}, ("best",))],
            None,
            {"b": 1.0},
            id="removed",
        ),
        pytest.param(
            [summary_record({"acc": {"min": 1, "max": 2}}), summary_record({}, ("acc/min", "no/such"))],
            None,
            {"acc/max": 2.0},
            id="removed within",
        ),
        pytest.param(
            [summary_record({"best": 0.5, "kept": 1})],
            {"best": 0.9},
            {"best": 0.9, "kept": 1.0},
            id="the file is the last word",
        ),
        pytest.param(
            [summary_record({"best": 0.5})], '{"best": 0.9', {"best": 0.5}, id="the file is damaged"
        ),
        pytest.param([summary_record({"best": 0.5})], "[1]", {"best": 0.5}, id="the file has no names"),
        pytest.param(
            [summary_record({"best": 0.5})], "[" * 100_000, {"best": 0.5}, id="the file is nested without end"
        ),
        pytest.param(
            [summary_record({"n": "NaN", "i": "-Infinity", "w": math.inf, "b": True})],
            None,
            {"n": "nan", "i": -math.inf, "w": math.inf, "b": 1.0},
            id="what JSON has not",
        ),
        pytest.param(
            [summary_record(OWN), summary_record({"_wandb/runtime": 4}, nested=True)],
            None,
            {},
            id="W&B's own",
        ),
        pytest.param(
            [summary_record({"none": None, "deep": {"none": None}, "empty": {}})], None, {}, id="nothing"
        ),
    ],
)
def test_a_summary_is_what_the_run_shows_as_its_values(
    tmp_path: Path,
    store: Store,
    capsys: pytest.CaptureFixture[str],
    records: list[bytes],
    file: Any,
    expected: dict[str, float],
) -> None:
    write(tmp_path, *records, file=file)
    report = run_import(capsys, "wandb", tmp_path, store.root)
    assert (last_values(store), report["not_taken"]) == (expected, {})
    assert logged_of(store, "digits", "a") == (
        [("loss", 0, "0.75"), ("loss", 1, "0.5")] if HISTORY[0] in records else []
    )
    again = run_import(capsys, "wandb", tmp_path, store.root)
    assert ([row["outcome"] for row in again["runs"]], again["taken"], again["not_taken"]) == (
        ["unchanged"],
        {},
        {},
    )


UNNAMED = "summary values with a name that is empty, longer than 256 characters or has control characters"
MEDIUM = {"_type": "histogram", "values": [1], "bins": [0, 1]}


@pytest.mark.parametrize(
    ("history", "summary", "not_taken"),
    [
        ({}, {"note": "hi", "other": "there"}, {"texts in summaries": 2}),
        ({}, {"scores": [1, 2]}, {"lists in summaries": 1}),
        ({}, {"h": MEDIUM, "deep": {"h": MEDIUM}}, {"media in summaries": 2}),
        ({}, {"huge": 10**400, "best": 1}, {"integers in summaries that a float64 does not hold": 1}),
        ({}, {"wrong": b"{", "best": 1}, {"values of summaries that are not JSON": 1}),
        ({}, {"": 1, "x" * 257: 2, "a\nb": 3}, {UNNAMED: 3}),
        ({"note": "hi"}, {"note": "hi"}, {}),
        ({"h": MEDIUM}, {"h": MEDIUM}, {}),
        ({"deep": {"h": MEDIUM}}, {"deep": {"h": MEDIUM}}, {}),
        ({"scores": [1]}, {"scores": [1]}, {"lists in a history": 1}),
        ({"huge": 10**400}, {"huge": 10**400}, {"integers that a float64 does not hold": 1}),
        ({"note": "hi"}, {"note": 3}, {}),
    ],
)
def test_what_is_no_number_in_a_summary_is_counted_once(
    tmp_path: Path,
    store: Store,
    capsys: pytest.CaptureFixture[str],
    history: dict[str, Any],
    summary: dict[str, Any],
    not_taken: dict[str, int],
) -> None:
    write(tmp_path, history_record(0, {"loss": 1.0, **history}), summary_record(summary))
    report = run_import(capsys, "wandb", tmp_path, store.root)
    assert (report["not_taken"], [row["outcome"] for row in report["runs"]]) == (not_taken, ["new"])
    numbers = {key: value for key, value in summary.items() if value in (1, 3) and key not in ("", "a\nb")}
    assert last_values(store) == {"loss": 1.0, **numbers}


@pytest.mark.parametrize(
    ("kind", "field", "reason"),
    [
        ("alert", None, "alerts"),
        ("tbrecord", None, "TensorBoard folders that were synced (import these)"),
        ("use_artifact", None, "artifacts that runs used"),
        (
            "metric",
            ("step_metric", "epoch"),
            "x axes of their own (define_metric with step_metric; the values are taken)",
        ),
        ("metric", ("expanded_from_glob", True), None),
        ("metric", None, None),
    ],
)
def test_what_has_no_form_here_is_counted(
    tmp_path: Path,
    store: Store,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    field: tuple[str, Any] | None,
    reason: str | None,
) -> None:
    record = record_class()()
    getattr(record, kind).SetInParent()
    if field:
        setattr(getattr(record, kind), *field)
    write(
        tmp_path,
        bytes(record.SerializeToString()),
        bytes(record.SerializeToString()),
        history_record(0, {"loss": 1}),
    )
    expected = {reason: 2} if reason else {}
    assert run_import(capsys, "wandb", tmp_path, store.root)["not_taken"] == expected
    assert run_import(capsys, "wandb", tmp_path, store.root)["not_taken"] == {}, (
        "what is passed over is counted where it is read"
    )


def test_a_config_that_is_not_json_is_null_and_counted(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record = record_class()()
    record.config.update.add(key="lr", value_json="0.1")
    record.config.update.add(nested_key=["deep", "wrong"], value_json="{")
    write(tmp_path, bytes(record.SerializeToString()))
    assert run_import(capsys, "wandb", tmp_path, store.root)["not_taken"] == {
        "values of configs that are not JSON": 1
    }
    assert read_run(store, "digits", "a").params == {"lr": 0.1, "deep": {"wrong": None}}


def test_a_run_without_an_exit_gets_its_summary_once_it_counts_as_ended(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path, "a", [run_record("a"), summary_record({"best": 0.9})])
    assert run_import(capsys, "wandb", tmp_path, store.root)["taken"] == {}
    os.utime(path, (STARTED, STARTED))
    assert run_import(capsys, "wandb", tmp_path, store.root)["taken"] == {"summary values": 1}
    assert (read_run(store, "digits", "a").status, last_values(store)) == ("crashed", {"best": 0.9})


def test_of_a_resumed_run_the_later_folder_wins_name_by_name(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "first", *HISTORY, file={"best": 0.5, "first": 1})
    run_import(capsys, "wandb", tmp_path, store.root)
    resumed = [
        run_record("a", started=STARTED + 60),
        history_record(0, {"loss": 0.25}),
        summary_record({"best": 0.9}),
        exit_record(0),
    ]
    write_run(tmp_path / "second", "a", resumed)
    report = run_import(capsys, "wandb", tmp_path, store.root)
    assert [row["outcome"] for row in report["runs"]] == ["continued"]
    assert report["taken"] == {"points": 1, "summary values": 2}
    assert last_values(store) == {"loss": 0.25, "best": 0.9, "first": 1.0}
    assert len(read_run(store, "digits", "a").attempts) == 2


@pytest.mark.parametrize("stopped", range(4))
def test_an_import_that_is_stopped_at_any_write_ends_with_the_whole_summary(
    tmp_path: Path, store: Store, stopped: int
) -> None:
    write(tmp_path, *HISTORY, summary_record({"best": 0.9, "loss": 0.1}), file={"best": 0.95})

    def run() -> ForeignRun:
        (foreign,) = read_runs(str(tmp_path), None, Skipped())
        assert isinstance(foreign, ForeignRun)
        return foreign

    taken = Counter[str]()
    with small_disk(stopped), pytest.raises(StoreError, match="the disk is full"):
        copy_run(store, run(), Skipped(), taken)
    copy_run(store, run(), Skipped(), taken)
    assert last_values(store) == {"best": 0.95, "loss": 0.1}
    assert taken == {"points": 2, "summary values": 2, "params": 0, "tags": 0, "artifacts": 1}
