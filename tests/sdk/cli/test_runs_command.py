"""``halving runs``: filters, orders, limits and what its table shows."""

from pathlib import Path

import pytest

from halving import Store
from halving.cli.runs import point_at
from tests.sdk.cli.command_output import Halving


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
