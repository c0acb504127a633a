"""Runs in Parquet files as neptune-exporter has written them, of a service that is gone."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import Store
from halving.imports import foreign_run
from halving.query.runs import list_runs
from tests.permissions import deny_access
from tests.properties import examples
from tests.sdk.imports.copies import outcomes, points, run_import
from tests.sdk.imports.neptune_files import (
    BEGAN,
    BEGAN_MS,
    FOLDER,
    NAME,
    PROJECT,
    Capture,
    Row,
    contents,
    histogram,
    param,
    point,
    series,
    steps_and_values,
    write_export,
    write_part,
)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    return tmp_path / "exports"


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        ("int", 2**63 - 1, 2**63 - 1),
        ("int", -(2**63), -(2**63)),
        ("int", 0, 0),
        ("float", 0.1, 0.1),
        ("float", 3.0, 3.0),
        ("float", float("inf"), float("inf")),
        ("string", "two\nlines, \u00fc", "two\nlines, \u00fc"),
        ("string", "007", "007"),
        ("string", "", ""),
        ("bool", False, False),
        ("bool", True, True),
        ("datetime", datetime(2024, 2, 29, 23, 59, 59, 123_000, UTC), "2024-02-29T23:59:59.123+00:00"),
        ("datetime", datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), "1969-12-31T23:59:59.999+00:00"),
        ("string_set", ["b", "a"], ["a", "b"]),
        ("string_set", [], []),
    ],
)
def test_a_param_is_what_it_was(
    exports: Path, root: str, capsys: Capture, kind: str, value: Any, kept: Any
) -> None:
    write_export(exports, [[param("config/it", kind, value)]])
    report = run_import(capsys, "neptune", exports, root)
    assert (outcomes(report), report["taken"], report["not_taken"]) == (
        {NAME: ("new", 0, 0, 0)},
        {"params": 1},
        {},
    )
    (info,) = list_runs(Store(root))
    assert (info.params, type(info.params["config/it"])) == ({"config/it": kept}, type(kept))


@pytest.mark.parametrize("kind", ["int", "float", "string", "bool", "datetime", "string_set"])
def test_a_param_without_a_value_is_one_that_the_run_does_not_have(
    exports: Path, root: str, capsys: Capture, kind: str
) -> None:
    write_export(exports, [[param("none", kind, None), param("lr", "float", 0.5)]])
    assert run_import(capsys, "neptune", exports, root)["not_taken"] == {}
    assert [info.params for info in list_runs(Store(root))] == [{"lr": 0.5}]


def test_series_are_points_texts_and_histograms_at_their_steps_and_times(
    exports: Path, root: str, capsys: Capture
) -> None:
    rows = [
        point("train/loss", 0, 0.5),
        point("train/loss", 1, float("nan"), None),
        point("train/loss", 10**11, -1e300),
        point("gr\u00f6\u00dfe", 7, 3),
        point("nothing", 1, None, None),
        series("notes", "string_series", 1, "a\nb"),
        series("notes", "string_series", 2, ""),
        series("notes", "string_series", 3, "c"),
        series("weights", "histogram_series", 4, histogram([0, 1, 3], [5, 2])),
        series("shares", "histogram_series", 4, histogram([0, 0.5, 1], [0.5, 1.5], "DENSITY")),
        series("broken", "histogram_series", 4, histogram([1, 1, 0], [5, 2])),
        series("broken", "histogram_series", 5, histogram([1, 2], [5, 2])),
        param("sys/creation_time", "datetime", datetime(2025, 3, 1, 11, tzinfo=UTC)),
    ]
    write_export(exports, [rows])
    report = run_import(capsys, "neptune", exports, root)
    assert outcomes(report) == {NAME: ("new", 4, 5, 0)}
    assert report["taken"] == {"points": 4, "texts": 3, "histograms": 2}
    assert report["not_taken"] == {"histograms whose edges do not grow, or that are damaged": 2}
    began = 1_740_826_800_000
    kept = [
        ("train/loss", 0, 0.5, BEGAN_MS),
        ("train/loss", 1, "nan", began),
        ("train/loss", 10**11, -1e300, BEGAN_MS),
    ]
    kept.append(("gr\u00f6\u00dfe", 7, 3.0, BEGAN_MS))
    assert [row[1:] for row in points(root)] == sorted(kept)
    assert contents(root, "text") == [("notes", 1, b"a\nb"), ("notes", 2, b""), ("notes", 3, b"c")]
    histograms = {key: json.loads(content) for key, _, content in contents(root, "histogram")}
    assert {key: (buckets["edges"], buckets["counts"]) for key, buckets in histograms.items()} == {
        "weights": ([0, 1, 3], [5, 2]),
        "shares": ([0, 0.5, 1], [0.25, 0.75]),
    }


def test_what_neptune_says_of_a_run_is_its_tags_its_times_and_its_end(
    exports: Path, root: str, capsys: Capture
) -> None:
    rows = [
        param("sys/name", "string", "baseline"),
        param("sys/tags", "string_set", ["good", "name"]),
        param("sys/group_tags", "string_set", ["march"]),
        param("sys/description", "string", "the first one"),
        param("sys/owner", "string", "ada"),
        param("sys/id", "string", "DIG-1"),
        param("sys/custom_run_id", "string", "RUN-1"),
        param("sys/creation_time", "datetime", BEGAN),
        param("sys/modification_time", "datetime", datetime(2026, 1, 1, tzinfo=UTC)),
        param("sys/ping_time", "datetime", datetime(2025, 3, 2, tzinfo=UTC)),
        param("sys/failed", "bool", True),
        param("sys/forking/parent", "string", "RUN-0"),
        param("sys/forking/step", "int", 5),
        param("sys/running_time", "float", 12.5),
        param("sys/size", "int", 3),
        param("lr", "float", 0.1),
    ]
    write_export(exports, [rows])
    write_export(exports, [[param("sys/failed", "bool", False)]], run="RUN-2")
    report = run_import(capsys, "neptune", exports, root)
    assert report["not_taken"] == {
        "facts of Neptune's own (sys/…)": 2,
        "tags with the name of another fact of the run (name, notes, user, …)": 1,
    }
    runs = {info.parent["imported"]["run"]: info for info in list_runs(Store(root))}
    first = runs[NAME]
    assert (first.project, first.status, first.params) == ("acme-digits", "failed", {"lr": 0.1})
    assert first.tags == {
        "good": "true",
        "march": "true",
        "name": "baseline",
        "notes": "the first one",
        "user": "ada",
        "id": "DIG-1",
        "custom_run_id": "RUN-1",
        "forking/parent": "RUN-0",
        "forking/step": "5",
    }
    assert (first.attempts[0].started, first.attempts[0].ended) == (
        "2025-03-01T12:00:00.005+00:00",
        "2025-03-02T00:00:00.000+00:00",
    )
    assert runs[f"{PROJECT}/RUN-2"].status == "finished"


def test_parts_are_read_by_their_numbers_and_no_value_is_lost(
    exports: Path, root: str, capsys: Capture
) -> None:
    parts = [[point("loss", part * 10 + row, part * 10 + row) for row in range(10)] for part in range(12)]
    parts[10].append(point("loss", 109, -1.0))
    folder = write_export(exports, parts)
    for source in (exports, exports / "data", folder, folder / "RUN-1-9f8e_part_7.parquet"):
        store = f"{root}-{source.name}"
        assert outcomes(run_import(capsys, "neptune", source, store)) == {NAME: ("new", 121, 0, 0)}
        assert sorted(steps_and_values(store)) == sorted(
            [("loss", 109, -1.0), *(("loss", step, step) for step in range(120))]
        )
        assert list_runs(Store(store))[0].summary == {"loss": 119.0}


def test_the_earlier_layout_has_several_runs_in_a_file(exports: Path, root: str, capsys: Capture) -> None:
    folder = exports / "data" / FOLDER
    for part in range(2):
        rows = [
            {"run_id": f"RUN-{number % 3}", **point("loss", part * 10 + number, number)}
            for number in range(10)
        ]
        write_part(
            folder / f"part_{part}.parquet", [*rows, {"run_id": f"RUN-{part}", **param("part", "int", part)}]
        )
    report = run_import(capsys, "neptune", exports, root)
    assert outcomes(report) == {
        f"{PROJECT}/RUN-{run}": ("new", 2 * count, 0, 0) for run, count in ((0, 4), (1, 3), (2, 3))
    }
    taken = {(run, step): value for run, _, step, value, _ in points(root)}
    ids = {info.parent["imported"]["run"][-1]: info.run for info in list_runs(Store(root))}
    assert taken == {
        (ids[str(number % 3)], part * 10 + number): number for part in range(2) for number in range(10)
    }
    assert sorted(str(info.params) for info in list_runs(Store(root))) == ["{'part': 0}", "{'part': 1}", "{}"]
    again = run_import(capsys, "neptune", exports, root)
    assert ({outcome for outcome, *_ in outcomes(again).values()}, again["taken"]) == ({"unchanged"}, {})


@pytest.mark.parametrize(
    ("left", "error"),
    [
        (["part_0.parquet.tmp"], "part_0.parquet.tmp is not written to its end"),
        (["part_1.parquet", "part_0.parquet.tmp"], "part_0.parquet.tmp is not written to its end"),
        (["part_1.parquet"], "part 0 of acme_digits-0a1b2c3d/bad is not there"),
        (["part_0.parquet", "part_2.parquet"], "part 1 of acme_digits-0a1b2c3d/bad is not there"),
        (
            ["part_0.parquet", "part_1.parquet", "part_2.parquet.tmp"],
            "part_2.parquet.tmp is not written to its end",
        ),
    ],
)
def test_an_export_that_is_not_whole_is_said_and_keeps_no_other_from_being_taken(
    exports: Path, root: str, capsys: Capture, left: list[str], error: str
) -> None:
    folder = write_export(exports, [[point("loss", 1, 0.5)]])
    for name in left:
        write_part(folder / f"bad_{name}", [point("loss", 1, 0.5)], run="bad")
    report = run_import(capsys, "neptune", exports, root, status=1)
    assert [(row["outcome"], row["error"] and error in row["error"]) for row in report["runs"]] == [
        ("new", None),
        ("failed", True),
    ]
    assert "run neptune-exporter again" in report["runs"][1]["error"]
    for name in left:
        (folder / f"bad_{name}").unlink()
    write_part(folder / "bad_part_0.parquet", [point("loss", 1, 0.5)], run="bad")
    assert sorted(
        outcome for outcome, *_ in outcomes(run_import(capsys, "neptune", exports, root)).values()
    ) == ["new", "unchanged"]


def test_damaged_and_foreign_files_are_said_and_keep_no_other_from_being_taken(
    exports: Path, root: str, capsys: Capture
) -> None:
    folder = write_export(exports, [[point("loss", 1, 0.5)]])
    whole = write_part(folder / "torn_part_0.parquet", [point("loss", 1, 0.5)], run="torn").read_bytes()
    (folder / "torn_part_0.parquet").write_bytes(whole[:-20])
    table = pq.read_table(folder / "RUN-1-9f8e_part_0.parquet")
    pq.write_table(table.drop_columns(["step", "file_value"]), folder / "other_part_0.parquet")
    write_part(folder / "closed_part_0.parquet", [point("loss", 1, 0.5)], run="closed")
    with deny_access(folder / "closed_part_0.parquet"):
        report = run_import(capsys, "neptune", exports, root, status=1)
    assert [row["outcome"] for row in report["runs"]] == ["new", "failed", "failed", "failed"]
    errors = {row["name"].rpartition("/")[2]: row["error"] for row in report["runs"]}
    assert (
        "other_part_0.parquet is not of neptune-exporter: it has no column step, file_value"
        in errors["other"]
    )
    assert "torn_part_0.parquet cannot be read" in errors["torn"]
    assert "closed_part_0.parquet cannot be read: Permission denied" in errors["closed"]


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        (["0.5", "1", "1.25"], [50, 100, 125]),
        (["0", "1", "2"], [0, 1, 2]),
        (["0.1", "0.2", "0.3"], [1, 2, 3]),
        (["0.000001", "1"], [1, 1_000_000]),
        (["-0.5", "0.5"], [-5, 5]),
        (["1.10", "2"], [11, 20]),
        (["0.999999", "999999"], [999_999, 999_999_000_000]),
        (["100000000000", "100000000001"], [10**11, 10**11 + 1]),
        (["-3", "12"], [-3, 12]),
        ([None, None, None], [0, 1, 2]),
        ([None, "0.5", None], [0, 5, 10]),
    ],
)
def test_steps_are_exact_and_those_with_fractions_are_multiplied(
    exports: Path, root: str, capsys: Capture, steps: list[str | None], kept: list[int]
) -> None:
    write_export(exports, [[point("loss", step, number) for number, step in enumerate(steps)]])
    report = run_import(capsys, "neptune", exports, root)
    by_step = sorted(zip(kept, range(len(kept)), strict=True))
    assert [(step, value) for _, step, value in steps_and_values(root)] == by_step
    (info,) = list_runs(Store(root))
    has_fractions = any("." in (step or "") for step in steps)
    assert ("step_scale" in info.parent["imported"]) == has_fractions
    assert [reason[:20] for reason in report["not_taken"]] == (
        ["steps with fractions"] if has_fractions else []
    )


@settings(max_examples=examples(25))
@given(st.lists(st.decimals(-(10**6), 10**6, places=6), min_size=1, max_size=8, unique=True))
def test_any_steps_stay_apart_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    from halving.imports.foreign_run import Skipped
    from halving.imports.neptune import read_runs

    exports = tmp_path_factory.mktemp("exports")
    write_export(exports, [[point("loss", str(step), number) for number, step in enumerate(steps)]])
    (run,) = read_runs(str(exports), None, Skipped())
    assert isinstance(run, foreign_run.ForeignRun)
    (piece,) = run.pieces({})
    scale = run.origin.get("step_scale", 1)
    assert piece.steps == [step * scale for step in steps]
    assert scale == 1 or any(step * (scale // 10) % 1 for step in steps)


def test_what_has_no_form_here_is_counted(exports: Path, root: str, capsys: Capture) -> None:
    rows: list[Row] = [
        {"attribute_path": "source_code/git", "attribute_type": "git_ref", "string_value": "x"},
        {"attribute_path": "sys/state", "attribute_type": "run_state"},
        {"attribute_path": "what", "attribute_type": None},
        point("loss", 1, None),
        point("", 1, 1.0),
        {**point("loss", 1, 1.0), "attribute_path": None},
        param("", "int", 1),
        series("text", "string_series", 1, None),
    ]
    write_export(exports, [rows])
    report = run_import(capsys, "neptune", exports, root)
    assert report["not_taken"] == {
        "attributes of Neptune's type 'git_ref'": 1,
        "attributes of Neptune's type 'run_state'": 1,
        "attributes of Neptune's type None": 1,
        "points of series that have a time, but no value": 2,
        "points with a name that is empty, longer than 256 characters or has control characters": 2,
        "params without a name": 1,
    }
    again = run_import(capsys, "neptune", exports, root)
    assert (outcomes(again), again["taken"]) == ({NAME: ("unchanged", 0, 0, 0)}, {})
