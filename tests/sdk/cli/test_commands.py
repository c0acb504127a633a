"""The SDK's commands as a person or a script meets them."""

import csv
import io
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest

import halving
from halving import Store
from halving.cli.main import main
from halving.cli.output import duration
from halving.cli.runs import point_at
from halving.query.api import leaderboard, sql
from halving.query.run_details import code_of
from halving.query.runs import RunAttempt, RunInfo


class Said(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


Halving = Callable[..., Said]


@pytest.fixture
def command(store: Store, capfd: pytest.CaptureFixture[str]) -> Halving:
    """Run a command on the test's store."""

    def run(name: str, *arguments: str) -> Said:
        status = main([name, "--root", store.root, *arguments])
        out, err = capfd.readouterr()
        return Said(status, out, err)

    return run


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with five runs of two projects: finished, resumed, failed, with values that are not finite, and
    crashed.
    """
    folder = tmp_path_factory.mktemp("prepared")
    root = folder / "store"
    for number, lr in enumerate((0.1, 0.01)):
        params = {"lr": lr, "optim": {"name": "adam"}}
        run = halving.init(
            "digits",
            params,
            root,
            id=f"base-{number}",
            tags={"kind": f"k{number}"},
            seed=5,
            system_metrics=None,
        )
        for step in range(4):
            run.log({"loss": lr / (step + 1), "val": {"acc": step / 4}}, step=step)
        if number == 0:
            run.log({"sample": halving.Image(np.zeros((2, 2)))}, step=3)
            (folder / "notes.txt").write_text("hello")
            run.log_artifact(folder / "notes.txt")
            run.save(weight=1)
        run.finish("finished" if number == 0 else "failed")
    run = halving.init("digits", {"lr": 0.5}, root, id="odd", system_metrics=None)
    run.log({"loss": math.nan, "up": math.inf, "down": -math.inf}, step=0)
    run.finish()
    for status, steps in (("paused", range(6)), ("finished", range(3, 8))):
        run = halving.init("text", {}, root, id="resumed", system_metrics=None)
        for step in steps:
            run.log({"loss": step + (0.5 if status == "finished" else 0.0)}, step=step)
        run.finish(status)
    run = halving.init("text", {}, root, id="killed", system_metrics=None)
    run.log({"loss": 3.0}, step=0)
    assert run.flush(30)
    run.log({"loss": 2.0}, step=1)
    killed = shutil.copytree(root, folder / "killed")  # what a kill at this moment would leave
    run.finish()
    return killed


@pytest.fixture
def filled(prepared: Path, store: Store) -> Store:
    """A copy of it that is this test's own."""
    shutil.copytree(prepared, store.root)
    return store


def files_of(store: Store) -> dict[str, float]:
    return {str(path): path.stat().st_mtime_ns for path in Path(store.root).rglob("*") if path.is_file()}


def rows_of(said: Said) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(said.out)))


def test_runs_shows_a_line_for_each_run_with_its_status_and_key_metrics(
    filled: Store, command: Halving
) -> None:
    said = command("runs")
    assert (said.status, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0].split() == [
        "run",
        "project",
        "status",
        "started",
        "duration",
        "attempt",
        "loss",
        "val/acc",
        "down",
        "up",
    ]
    cells = {line.split()[0]: line.split() for line in lines[2:] if line}
    assert {run: words[2] for run, words in cells.items()} == {
        "base-0": "finished",
        "base-1": "failed",
        "odd": "finished",
        "resumed": "finished",
        "killed": "unfinished",
    }
    assert cells["base-0"][-4:] == ["0.025", "0.75", "-", "-"]
    assert cells["odd"][-4:] == ["nan", "-", "-inf", "inf"]
    assert cells["killed"][-4:] == ["2", "-", "-", "-"]  # from its segment and its journal
    assert cells["resumed"][-5] == "2"


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        (["--project", "text"], {"resumed", "killed"}),
        (["status in (failed, unfinished)"], {"base-1", "killed"}),
        (["tags.kind is not null"], {"base-0", "base-1"}),
        (["tags.kind = k1"], {"base-1"}),
        (["tags.kind = k1 and status = finished"], set()),
        (["sweep = none"], set()),
        (["metrics.loss < 3", "--project", "text"], {"killed"}),
        (["params.optim/name = adam and max(metrics.val/acc) > 0.5"], {"base-0", "base-1"}),
    ],
)
def test_runs_are_filtered(filled: Store, command: Halving, arguments: list[str], runs: set[str]) -> None:
    assert {run["run"] for run in command("runs", "--json", *arguments).data["runs"]} == runs
    if not runs:
        assert "no run matches" in command("runs", *arguments).out


def test_runs_are_ordered_and_those_without_a_number_come_last_in_either_direction(
    filled: Store, command: Halving
) -> None:
    def order(*arguments: str) -> list[str]:
        return [run["run"] for run in command("runs", "--json", *arguments).data["runs"]]

    assert order("order by metrics.loss") == ["base-1", "base-0", "killed", "resumed", "odd"]
    assert order("order by metrics.loss desc") == ["resumed", "killed", "base-0", "base-1", "odd"]
    assert order("order by metrics.loss", "--limit", "2") == ["base-1", "base-0"]


def test_of_two_limits_the_smaller_one_wins_and_the_filter_s_own_is_a_part_of_it(
    filled: Store, command: Halving
) -> None:
    assert command("runs", "--json", "--limit", "2").data["total"] == 5
    assert "2 of 5 runs; --limit 0 shows all" in command("runs", "--limit", "2").out
    for text, option, printed, total in (
        ("limit 3", "2", 2, 3),
        ("limit 3", "4", 3, 3),
        ("limit 3", "0", 3, 3),
        ("limit 9", "0", 5, 5),
    ):
        data = command("runs", "--json", text, "--limit", option).data
        assert (len(data["runs"]), data["total"]) == (printed, total)
    assert "--limit 0" not in command("runs", "limit 3").out


def test_runs_shows_what_its_filter_names(filled: Store, command: Halving) -> None:
    def columns(*arguments: str) -> list[str]:
        return command("runs", *arguments).out.splitlines()[0].split()[6:]

    text = (
        "params.lr < 1 and status = finished and (epoch >= 0 or seed = 5) order by min(metrics.loss), "
        "metrics.up, started"
    )
    assert columns(text) == [
        "params.lr",
        "epoch",
        "seed",
        "min(metrics.loss)",
        "up",
        "loss",
        "down",
        "val/acc",
    ]
    assert columns(text, "--metrics", "loss") == [
        "params.lr",
        "epoch",
        "seed",
        "min(metrics.loss)",
        "loss",
        "up",
    ]
    cells = {
        line.split()[0]: line.split()
        for line in command("runs", text, "--metrics", "loss").out.splitlines()[2:]
        if line
    }
    assert list(cells) == ["base-0", "odd"]
    assert cells["base-0"][-6:] == ["0.1", "0", "5", "0.025", "0.025", "-"]
    assert cells["odd"][-6:] == ["0.5", "0", "-", "-", "nan", "inf"]
    ended = command("runs", "ended is null or ended > 1d ago", "--metrics", "").out.splitlines()
    assert ended[0].split()[6:] == ["ended"]
    assert next(line for line in ended if line.startswith("killed")).split()[-1] == "-"


def test_a_wrong_filter_is_shown_with_a_caret_below_the_place(command: Halving) -> None:
    said = command("runs", "status = finished and seconds < abc")
    assert (said.status, said.out) == (1, "")
    assert said.err == (
        "halving runs: column 33: 'abc' is not accepted: seconds is a number, such as 5, 1e-4, inf or nan\n"
        "  status = finished and seconds < abc\n"
        "                                  ^\n"
    )
    said = command("runs", "stage = champion")
    assert said.err.startswith(
        "halving runs: column 1: stage is not accepted here: only the catalog knows it; "
    )


@pytest.mark.parametrize(
    ("text", "column", "lines"),
    [
        ("seconds = a", 11, ["  seconds = a", "            ^"]),
        ("a\n\tb", 4, ["  a  b", "     ^"]),
        ("日本 x", 4, ["  日本 x", "       ^"]),
        ("status =", 9, ["  status =", "          ^"]),
        ("x" * 300, 1, ["  " + "x" * 100 + "…", "  ^"]),
        ("x" * 299 + "y", 300, ["  …" + "x" * 99 + "y", " " * 102 + "^"]),
        ("x" * 300 + "y" + "x" * 300, 301, ["  …" + "x" * 50 + "y" + "x" * 49 + "…", " " * 53 + "^"]),
    ],
)
def test_the_caret_stands_below_its_column_however_long_the_line_is(
    text: str, column: int, lines: list[str]
) -> None:
    assert point_at(text, column).split("\n") == lines


def test_a_name_that_no_run_has_is_said_beside_the_answer_but_is_no_error(
    filled: Store, command: Halving
) -> None:
    said = command("runs", "metrics.los < 1 or params.lrr < 1")
    assert (said.status, said.err) == (0, "")
    assert "no run matches; halving runs lists all\nno run has params.lrr; close to it: lr\n" in said.out
    assert "no run has metrics.los; close to it: loss" in said.out
    assert "no run has tags.x; there are 1 tags: kind" in command("runs", "order by tags.x").out
    assert "no run has" not in command("runs", "metrics.up > 0 and params.lr > 0 and tags.kind = none").out
    assert command("runs", "metrics.los < 1", "--json").data["runs"] == []


def test_runs_shows_the_metrics_that_are_asked_for(filled: Store, command: Halving) -> None:
    assert command("runs", "--metrics", "up,val/acc").out.splitlines()[0].split()[-2:] == ["up", "val/acc"]
    values = {
        run["run"]: run["metrics"] for run in command("runs", "--json", "--metrics", "up,loss").data["runs"]
    }
    assert values["odd"] == {"up": "Infinity", "loss": "NaN"}
    assert values["killed"] == {"up": None, "loss": 2.0}


def test_commands_on_an_empty_store_say_what_to_do(command: Halving, store: Store) -> None:
    said = command("runs")
    assert (said.status, "there are no runs in" in said.out, "halving.init(project=…)" in said.out) == (
        0,
        True,
        True,
    )
    assert command("runs", "--json").data == {"store": store.root, "total": 0, "runs": [], "problems": []}
    assert "there are no runs in" in command("show", "x").err
    assert "nothing to recover" in command("recover").out
    assert "nothing to compact" in command("compact", "--all").out
    assert not Path(store.root).exists()


def test_show_tells_everything_about_a_run(filled: Store, command: Halving) -> None:
    said = command("show", "base-0")
    assert (said.status, said.err) == (0, "")
    for text in (
        "digits/base-0: finished",
        "optim/name    adam",
        "kind    k0",
        "CPython",
        "in all (--packages)",
        "notes.txt",
        "image",
        "epoch 0, attempt 1",
        "runs/project=digits/base-0",
        "1 not compacted yet",
    ):
        assert text in said.out
    loss = next(line.split() for line in said.out.splitlines() if line.split()[:1] == ["loss"])
    assert loss == ["loss", "0.025", "0.025", "0.1", "4"]
    assert "pyarrow " in command("show", "base-0", "--packages").out


def _record_missed(store: Store, attempt: int, missed: dict[str, Any]) -> None:
    """Write into an attempt's end which checkpoints the store did not take, as its end would have."""
    path = Path(store.root) / f"runs/project=p/r/end-{attempt:04d}.json"
    end = json.loads(path.read_text())
    end["checkpoints"]["missed"] = missed
    path.chmod(0o644)
    path.write_text(json.dumps(end))


def test_show_says_which_checkpoints_the_store_did_not_take(store: Store, command: Halving) -> None:
    with halving.init("p", id="r", root=store.root, system_metrics=None) as run:
        run.save(epoch=1)
    _record_missed(store, 1, {"count": 2, "since": "2026-03-01T10:00:00+00:00", "why": "it is full"})
    with halving.init("p", id="r", root=store.root, system_metrics=None) as run:
        run.save(epoch=2)
        run.flush()
        saved = run.records.checkpoints()[-1]
        missed = {"count": 3, "since": "2026-03-02T10:00:00+00:00", "why": "the store does not answer"}
        for _ in range(2):  # again after its answer was lost
            run.records.add_checkpoint(saved._replace(epoch=7, missed=missed))
        # by an image that means something else
        run.records.add_checkpoint(saved._replace(epoch=8, missed={"n": 1}))
    output = " ".join(command("show", "r").out.split())
    assert "skipped, because they were not due or the store did not take them" in output
    assert (
        "not taken attempt 1 skipped 2 checkpoints, from 2026-03-01 10:00:00 UTC on, and none was stored "
        "before it ended: it is full "
        "attempt 2 skipped 3 checkpoints, from 2026-03-02 10:00:00 UTC on, until that of epoch 7 was "
        "stored: the store does not answer "
        "files"
    ) in output


def test_show_of_a_run_of_which_the_store_took_no_checkpoint_says_so(store: Store, command: Halving) -> None:
    with halving.init("p", id="r", root=store.root, system_metrics=None) as run:
        run.log({"loss": 1.0}, step=1)
    assert ["checkpoints"] not in [line.split() for line in command("show", "r").out.splitlines()]
    _record_missed(
        store, 1, {"count": 7, "since": "2026-03-01T10:00:00+00:00", "why": "the store does not answer"}
    )
    output = " ".join(command("show", "r").out.split())
    assert "checkpoints count 0 written 0 in" in output
    assert (
        "not taken attempt 1 skipped 7 checkpoints, from 2026-03-01 10:00:00 UTC on, and none was stored "
        "before it ended: "
    ) in output


def test_show_gives_as_data_what_is_in_the_files(filled: Store, command: Halving) -> None:
    data = command("show", "digits/base-0", "--json").data
    assert data["params"] == {"lr": 0.1, "optim.name": "adam"}
    assert data["metrics"]["val/acc"] == {"last": 0.75, "min": 0.0, "max": 0.75, "points": 4}
    assert (data["seed"], data["tags"], data["attempts"][0]["dropped_points"]) == (5, {"kind": "k0"}, 0)
    assert data["provenance"]["packages"]["pyarrow"]
    (artifact,) = data["artifacts"]
    (media,) = data["media"]
    (checkpoint,) = data["checkpoints"]
    assert Path(filled.root, artifact["file"]).read_text() == "hello"
    assert Path(filled.root, media["file"]).read_bytes().startswith(b"\x89PNG")
    assert (media["key"], checkpoint["epoch"]) == ("sample", 0)
    assert all(Path(filled.root, name).exists() for name in data["files"]["segments"])
    odd = command("show", "odd", "--json").data["metrics"]
    assert odd["loss"] == {"last": "NaN", "min": None, "max": None, "points": 1}
    assert odd["down"]["last"] == "-Infinity"


def test_show_of_a_resumed_run_lists_its_attempts_and_one_stitched_curve(
    filled: Store, command: Halving
) -> None:
    data = command("show", "resumed", "--json").data
    assert [attempt["status"] for attempt in data["attempts"]] == ["paused", "finished"]
    assert data["metrics"]["loss"] == {"last": 7.5, "min": 0.0, "max": 7.5, "points": 8}
    assert "2 attempts" in command("show", "resumed").out


def test_show_of_a_killed_run_says_how_to_save_its_points(filled: Store, command: Halving) -> None:
    said = command("show", "killed")
    assert "text/killed: unfinished" in said.out
    assert "run halving recover on the machine that did" in said.out
    assert command("show", "killed", "--json").data["metrics"]["loss"] == {
        "last": 2.0,
        "min": 2.0,
        "max": 3.0,
        "points": 2,
    }


def test_an_unknown_or_ambiguous_run_is_one_message_with_candidates(filled: Store, command: Halving) -> None:
    for name in ("show", "compare", "export", "compact", "recover"):
        said = command(name, "bsae-0")
        assert (said.status, said.out) == (1, "")
        assert said.err == f"halving {name}: no run 'bsae-0' in {filled.root}; close to it: base-0, base-1\n"
        said = command(name, "base")
        assert (said.status, said.out) == (1, "")
        assert (
            "run 'base' is ambiguous: it could be any of 2 runs (digits/base-0, digits/base-1); give more "
            "of the id"
        ) in said.err


def test_compare_shows_what_differs_and_counts_what_is_equal(filled: Store, command: Halving) -> None:
    said = command("compare", "base-0", "base-1")
    assert (said.status, said.err) == (0, "")
    lines = [line.split() for line in said.out.splitlines()]
    for row in (["status", "finished", "failed"], ["lr", "0.1", "0.01"], ["loss", "0.025", "0.0025"]):
        assert row in lines
    assert "optim/name" not in said.out
    assert "equal and not shown: params 1, " in said.out
    assert ["optim/name", "adam", "adam"] in [
        line.split() for line in command("compare", "base-0", "base-1", "--all").out.splitlines()
    ]


def test_compare_as_data_is_complete_with_what_differs_first(filled: Store, command: Halving) -> None:
    data = command("compare", "base-0", "odd", "killed", "--json").data
    assert [run["run"] for run in data["runs"]] == ["base-0", "odd", "killed"]
    assert data["params"]["lr"] == {"differs": True, "values": [0.1, 0.5, None]}
    assert data["metrics"]["loss"]["values"] == [0.025, "NaN", 2.0]
    assert not any(row["differs"] for row in data["packages"].values())
    for section in ("params", "code", "environment", "packages", "metrics"):
        assert (states := [row["differs"] for row in data[section].values()]) == sorted(states, reverse=True)


def test_packages_that_differ_are_compared(filled: Store, command: Halving) -> None:
    path = Path(filled.root, "runs/project=digits/base-1/record.json")
    record = json.loads(path.read_text())
    record["provenance"]["packages"]["numpy"] = "1.0"
    del record["provenance"]["packages"]["pyarrow"]
    path.write_text(json.dumps(record))
    lines = [line.split() for line in command("compare", "base-0", "base-1").out.splitlines()]
    assert ["numpy", np.__version__, "1.0"] in lines
    assert [line[2] for line in lines if line[:1] == ["pyarrow"]] == ["-"]


def test_a_nested_param_has_one_name_wherever_params_are_named(filled: Store, command: Halving) -> None:
    for run, lr in (("one", 0.1), ("two", 0.2)):
        params = {"optimizer": {"lr": lr, "schedule": {"kind": "cosine"}, "betas": [0.9, 0.99]}}
        training = halving.init("nested", params, filled.root, id=run, system_metrics=None)
        training.log({"loss": lr}, step=0)
        training.finish()
    names = {"optimizer/lr", "optimizer/schedule/kind", "optimizer/betas"}
    words = {line.split()[0] for line in command("show", "one").out.splitlines() if line.split()}
    assert names <= words
    assert set(command("compare", "one", "two", "--json").data["params"]) == names
    assert ["optimizer/lr", "0.1", "0.2"] in [
        line.split() for line in command("compare", "one", "two").out.splitlines()
    ]
    assert (
        set(sql("SELECT name FROM params WHERE project = 'nested'", root=filled)["name"].to_pylist()) == names
    )
    board = leaderboard("nested", "loss", direction="minimize", root=filled)
    assert {
        name.removeprefix("params.") for name in board.column_names if name.startswith("params.")
    } == names
    for run in (
        *command("runs", "--project", "nested", "--json").data["runs"],
        command("show", "one", "--json").data,
    ):
        assert set(run["params"]) == {name.replace("/", ".") for name in names}


def test_comparing_needs_two_different_runs(filled: Store, command: Halving) -> None:
    said = command("compare", "base-0", "digits/base-0")
    assert (said.status, said.out) == (1, "")
    assert "give at least two different runs" in said.err


def test_export_writes_every_stitched_point_in_each_format(
    filled: Store, command: Halving, tmp_path: Path
) -> None:
    said = command("export", "resumed", "odd", "--keys", "loss,up")
    assert (said.status, said.err) == (0, "")
    rows = rows_of(said)
    points = [
        (row["run"], row["key"], int(row["step"]), float(row["value"]), int(row["attempt"])) for row in rows
    ]
    stitched = [(float(step), 1) for step in range(3)] + [(step + 0.5, 2) for step in range(3, 8)]
    assert points[:8] == [("resumed", "loss", step, *value) for step, value in enumerate(stitched)]
    assert [(row["key"], row["value"]) for row in rows[8:]] == [("loss", "nan"), ("up", "inf")]
    assert rows[0]["wall_time"].endswith("Z")

    data = command("export", "resumed", "odd", "--keys", "loss,up", "--json").data
    assert data["columns"] == list(rows[0])
    assert [row[5] for row in data["rows"]][-3:] == [7.5, "NaN", "Infinity"]
    assert [row[3] for row in data["rows"]] == [int(row["step"]) for row in rows]

    target = tmp_path / "points.parquet"
    assert (
        command("export", "resumed", "odd", "-o", str(target)).err == f"11 points of 2 runs are in {target}\n"
    )
    table = pq.read_table(target)
    assert table.column_names == list(rows[0])
    assert table["value"].to_pylist()[:8] == [value for value, _ in stitched]
    assert command("export", "odd", "-o", str(target), "--json").data == {
        "file": str(target),
        "format": "parquet",
        "points": 3,
    }
    assert sorted(path.name for path in tmp_path.iterdir() if "points" in path.name) == ["points.parquet"]


def test_an_export_is_the_same_before_and_after_compaction(filled: Store, command: Halving) -> None:
    def export_rows() -> list[dict[str, str]]:
        return rows_of(command("export", "base-0", "base-1", "odd", "-k", "loss,val/acc,up"))

    before = export_rows()
    assert len(before) == 18
    said = command("compact", "--project", "digits")
    assert (said.status, "base-0" in said.out) == (0, True)
    assert export_rows() == before
    full = command("show", "odd", "--json").data["files"]["full"]
    assert full.startswith("metrics/project=digits/run=odd/full-000001-")


def test_an_export_that_cannot_be_made_leaves_no_file(
    filled: Store, command: Halving, tmp_path: Path
) -> None:
    said = command("export", "odd", "--keys", "lost", "-o", str(tmp_path / "x.csv"))
    assert (said.status, said.out) == (1, "")
    assert said.err == "halving export: no points of lost in these runs; there are down, loss, up\n"
    said = command("export", "odd", "-o", str(tmp_path / "nowhere" / "x.csv"))
    assert (said.status, "No such file or directory" in said.err) == (1, True)
    said = command("export", "odd", "--json", "--format", "csv")
    assert (said.status, said.out) == (1, "")
    assert not [path for path in tmp_path.iterdir() if "x.csv" in path.name]


def test_recover_saves_what_a_killed_process_left(filled: Store, command: Halving) -> None:
    said = command("recover", "killed", "--json")
    assert said.status == 0
    assert said.data["attempts"] == [
        {"project": "text", "run": "killed", "attempt": 1, "points": 1, "state": "recovered"}
    ]
    assert "nothing to recover" in command("recover").out
    assert command("show", "killed", "--json").data["status"] == "crashed"
    assert [row["value"] for row in rows_of(command("export", "killed"))] == ["3", "2"]


def test_recover_tells_what_is_live_and_what_had_to_be_kept(filled: Store, command: Halving) -> None:
    run = halving.init("text", {}, filled.root, id="live", system_metrics=None)
    live = Path(filled.root, "metrics/project=text/run=killed/live")
    for path in live.iterdir():
        path.write_bytes(b"damaged")
    said = command("recover")
    assert said.status == 1
    assert [line.split()[4:5] for line in said.out.splitlines()[2:4]] == [["kept:"], ["live"]]
    assert "run the same command again to retry" in said.out
    run.finish()


def test_compact_says_what_it_did_and_does_nothing_twice(filled: Store, command: Halving) -> None:
    first = command("compact", "base-0", "--json")
    (row,) = first.data["runs"]
    assert (row["run"], row["segments"], row["error"]) == ("base-0", 1, None)
    assert (
        row["points"]
        == row["total"]
        == sum(curve["points"] for curve in command("show", "base-0", "--json").data["metrics"].values())
    )
    (again,) = command("compact", "base-0", "--json").data["runs"]
    assert (again["points"], again["segments"]) == (0, 0)


def test_runs_lists_the_others_beside_one_that_is_damaged_and_names_the_file(
    filled: Store, command: Halving
) -> None:
    total = command("runs", "--json").data["total"]
    filled.replace("runs/project=digits/odd/record.json", b'{"project": ')
    said = command("runs", "--limit", "0")
    assert (said.status, "odd" in said.out.partition("a run is left out")[0]) == (0, False)
    assert (
        f"a run is left out: {filled.address('runs/project=digits/odd/record.json')} is damaged: " in said.out
    )
    data = command("runs", "--json").data
    assert (data["total"], len(data["problems"])) == (total - 1, 1)


def test_compact_goes_on_after_a_run_that_is_damaged_and_its_status_is_1(
    filled: Store, command: Halving
) -> None:
    for path in Path(filled.root, "metrics/project=digits/run=odd/live").iterdir():
        path.write_bytes(b"damaged")
    said = command("compact", "--project", "digits")
    assert said.status == 1
    assert "base-1" in said.out
    assert "digits/odd: " in said.out


def test_compact_needs_to_know_which_runs(filled: Store, command: Halving) -> None:
    for arguments in ([], ["base-0", "--all"], ["--all", "--project", "digits"]):
        said = command("compact", *arguments)
        assert (said.status, said.out) == (1, "")
        assert "give RUN…, or --project NAME, or --all" in said.err


def test_a_run_can_be_read_while_compactions_take_its_files_away(filled: Store, command: Halving) -> None:
    run = halving.init("text", {}, filled.root, id="busy", system_metrics=None)
    stop = threading.Event()

    def compact_always() -> None:
        from halving.maintenance.compaction import compact

        while not stop.is_set():
            compact(filled, "text", "busy")

    thread = threading.Thread(target=compact_always)
    thread.start()
    try:
        for step in range(30):
            run.log({"loss": float(step)}, step=step)
            run.flush()
            data = command("export", "busy", "--json").data
            assert [row[3] for row in data["rows"]] == list(range(step + 1))
    finally:
        stop.set()
        thread.join()
        run.finish()


def test_a_damaged_metric_file_is_one_message(filled: Store, command: Halving) -> None:
    for path in Path(filled.root, "metrics/project=digits/run=odd/live").iterdir():
        path.write_bytes(b"damaged")
    for name in ("show", "export"):
        said = command(name, "odd")
        assert (said.status, said.out) == (1, "")
        assert said.err.startswith(
            f"halving {name}: a metric file of run 'odd' in {filled.root} is damaged: "
        )


def test_what_retention_left_is_shown_and_what_it_took_is_not_exported(
    filled: Store, command: Halving
) -> None:
    from halving.maintenance.retention import PointDays, drop_points

    before = command("show", "resumed", "--json").data["metrics"]
    assert command("compact", "resumed").status == 0
    later = datetime.now(UTC) + timedelta(days=30)
    drop_points(filled, "text", PointDays(1), protected=[], now=later)
    assert command("show", "resumed", "--json").data["metrics"] == before
    said = command("export", "resumed", "base-0", "-k", "loss")
    assert (said.status, "were dropped by retention" in said.err) == (1, True)
    said = command("export", "resumed", "base-0")
    assert (said.status, {row["run"] for row in rows_of(said)}) == (0, {"base-0"})
    assert "left out: the points of 'loss' in run 'resumed' were dropped by retention" in said.err
    drop_points(filled, "text", PointDays(1, rollup=2), protected=[], now=later + timedelta(days=30))
    assert command("show", "resumed", "--json").data["metrics"] == {
        "loss": {"last": 7.5, "min": None, "max": None, "points": None}
    }


def test_reading_commands_write_nothing(filled: Store, command: Halving) -> None:
    before = files_of(filled)
    for arguments in (
        ["runs"],
        ["show", "base-0"],
        ["show", "killed"],
        ["compare", "base-0", "killed"],
        ["export", "resumed"],
    ):
        assert command(*arguments).status == 0
        assert command(*arguments, "--json").status == 0
    assert files_of(filled) == before


def test_what_a_person_wrote_is_shown_as_it_is(store: Store, command: Halving) -> None:
    halving.init(
        "p", {"note": "[bold]x[/] :smile:", "nan": math.nan}, store.root, id="r", system_metrics=None
    ).finish()
    assert "[bold]x[/] :smile:" in command("show", "r").out
    assert command("show", "r", "--json").data["params"] == {"note": "[bold]x[/] :smile:", "nan": "NaN"}
    assert "no metrics" in command("show", "r").out
    assert "not in a git checkout" in command("show", "r").out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (3.24, "3.2 s"),
        (12.0, "12 s"),
        (90, "1.5 min"),
        (9000, "2.5 h"),
        (180_000, "2.1 d"),
    ],
)
def test_durations_are_shown_in_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_calling_it_wrongly_is_status_2(command: Halving, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in (["show"], ["runs", "--limit", "-1"], ["export", "x", "--format", "xml"], ["nonsense"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
        assert capfd.readouterr().out == ""


def test_a_store_that_cannot_be_read_is_named(tmp_path: Path, store: Store, command: Halving) -> None:
    Path(store.root).write_text("a file where the store should be")
    said = command("runs")
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith(f"halving runs: cannot list {store.root}/runs: ")


def shell(line: str, store: Store) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "HALVING_ROOT": store.root, "PYTHON": sys.executable}
    return subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_pipe_that_is_closed_early_is_quiet(filled: Store) -> None:
    run = halving.init("text", {}, filled.root, id="long", system_metrics=None)
    for step in range(20_000):
        run.log({"loss": 1.0}, step=step)
    run.finish()
    for name in ("export long", "export long --json", "show base-0 --packages", "runs"):
        done = shell(f'set -o pipefail; "$PYTHON" -m halving.cli.main {name} | head -1', filled)
        assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


@pytest.mark.slow
def test_without_rich_json_works_and_tables_say_what_to_install(filled: Store) -> None:
    without = "\"$PYTHON\" -c \"import sys; sys.modules['rich'] = None; sys.modules['rich.console'] = None; "
    done = shell(f"{without}from halving.cli.main import main; sys.exit(main(['runs', '--json']))\"", filled)
    assert (done.returncode, len(json.loads(done.stdout)["runs"])) == (0, 5)
    done = shell(f"{without}from halving.cli.main import main; sys.exit(main(['runs']))\"", filled)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "halving runs: tables need the package rich: pip install 'halving[cli]', or ask for --json\n"
    )


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\ntry:\n    from halving.cli.main import main; main(['--help'])\n"
        "finally:\n    print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    for name in ("runs", "show", "compare", "rerun", "why", "export", "recover", "compact"):
        assert f"    {name} " in done.stdout
    for heavy in ("rich", "pyarrow", "numpy", "duckdb", "dagster", "sqlalchemy", "halving.query.runs"):
        assert f"'{heavy}'" not in done.stderr


@pytest.mark.parametrize(
    ("patch", "says"),
    [("sha256:1", "changed files: the patch has them"), (None, "changed files, all left out of the patch")],
)
def test_a_patch_is_only_said_to_have_the_changes_where_there_is_one(patch: str | None, says: str) -> None:
    record = {
        "provenance": {
            "git": {
                "dirty": True,
                "patch": patch,
                "left_out": [{"path": "a.bin", "bytes": 9}],
                "left_out_count": 1,
            }
        }
    }
    code = code_of(
        RunInfo("p", "r", {}, {}, {}, None, (RunAttempt(1, "finished", "", None, None),), {}, True, record)
    )
    assert (code["working tree"], code["left out of it"]) == (says, "a.bin (9 B)")
