"""``halving show`` and ``halving compare``: everything about a run, and what differs between several."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import halving
from halving import Store
from halving.query.api import leaderboard, sql
from halving.query.run_details import code_of
from halving.query.runs import RunAttempt, RunInfo
from halving.text import duration
from tests.sdk.cli.command_output import Halving


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
