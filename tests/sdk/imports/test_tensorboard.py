"""Event files that TensorBoard's writer of PyTorch has written."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import halving
from halving.cli.main import main
from halving.imports import foreign_run
from halving.imports.foreign_run import PieceBuilder, Skipped
from halving.imports.tensorboard_values import add_value
from halving.imports.tf_records import records
from halving.maintenance.compaction import compact
from halving.query.runs import list_runs
from halving.store.store import Store
from tests.permissions import deny_access
from tests.sdk.imports.copies import media, outcomes, points, run_import, small_disk

TIME = 1_700_000_000.0
GROWING = [1e-12 * 1.1**power for power in range(700)]  # the bins of PyTorch's writer, below and above zero


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@contextmanager
def writing(folder: Path, **options: Any) -> Iterator[Any]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), **options)
    yield writer
    writer.close()


def log_scalars(folder: Path, steps: range, *, key: str = "train/loss", **options: Any) -> None:
    with writing(folder, **options) as writer:
        for step in steps:
            writer.add_scalar(key, 1 / (step + 1), step, walltime=TIME + step)


def events_file(folder: Path) -> Path:
    (path,) = folder.glob("*tfevents*")
    return path


def test_what_was_written_is_there_with_its_steps_times_and_values(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = np.random.default_rng(0).integers(0, 255, (3, 8, 8), np.uint8)
    with writing(tmp_path / "logs" / "first") as writer:
        for step, value in enumerate((0.5, float("nan"), float("inf"), -1e30)):
            writer.add_scalar("train/loss", value, step, walltime=TIME + step)
        writer.add_scalar("größe", 3, 7, walltime=TIME)
        writer.add_image("samples", picture, 2, walltime=TIME)
        writer.add_images("batch", np.stack([picture, picture // 2]), 1, walltime=TIME)
        writer.add_histogram("weights", np.arange(100.0), 3, walltime=TIME)
        writer.add_histogram("all equal", np.zeros(10), 3, walltime=TIME)
        writer.add_text("note", "*hello*", 0, walltime=TIME)
        writer.add_pr_curve("pr", np.array([0, 1]), np.array([0.2, 0.8]), 0)
        writer.add_audio("sound", np.zeros(100, np.float32)[None], 0)
    report = run_import(capsys, "tensorboard", tmp_path / "logs", root)
    assert outcomes(report) == {"first": ("new", 5, 5, 0)}
    assert report["not_taken"] == {"precision-recall curves": 1, "audio clips": 1}
    assert report["taken"] == {"points": 5, "images": 2, "histograms": 2, "texts": 1}
    run = report["runs"][0]["run"]
    kept = [("train/loss", 0, 0.5, 0), ("train/loss", 1, "nan", 1), ("train/loss", 2, float("inf"), 2)]
    kept += [("train/loss", 3, float(np.float32(-1e30)), 3), ("größe", 7, 3.0, 0)]
    assert points(root) == sorted(
        (run, key, step, value, int((TIME + at) * 1000)) for key, step, value, at in kept
    )
    assert [(key, step, kind) for key, step, kind, _ in media(root)] == [
        ("all equal", 3, "histogram"),
        ("batch", 1, "image"),
        ("note", 0, "text"),
        ("samples", 2, "image"),
        ("weights", 3, "histogram"),
    ]
    (info,) = list_runs(Store(root))
    assert (info.project, info.status, info.summary["größe"]) == ("logs", "finished", 3.0)


@pytest.mark.parametrize(
    "values",
    [
        [-1.0, -0.5, 0.0, 0.0, 0.0],  # the last bucket is as wide as a point
        [0.0, 0.0, 1.0],
        [-1.0, 0.0, 1.0],
        [0.0],
        [-3.0] * 4,
        [1e-12, 1e-12],
        [5.0, 5.0, 1e10],
        [-1e10, -1e-12, 0.0],
    ],
)
@pytest.mark.parametrize(
    "bins", [[-each for each in reversed(GROWING)] + [0.0, *GROWING], "auto"], ids=["tensorflow", "auto"]
)
def test_no_count_of_a_histogram_is_lost(values: list[float], bins: Any) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from torch.utils.tensorboard.summary import histogram

    skipped = Skipped()
    builder = PieceBuilder(skipped, {})
    (value,) = histogram("weights", np.array(values), bins).value
    add_value(builder, "place", Event(step=3, wall_time=TIME), value, {}, skipped)
    (medium,) = builder.take().media
    facts = medium.media.describe()
    assert (facts["count"], skipped.reasons) == (len(values), {})
    assert facts["low"] <= min(values) <= max(values) <= facts["high"]


def test_an_import_ends_with_what_was_taken_and_what_was_not(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with writing(tmp_path / "logs") as writer:
        writer.add_scalar("loss", 0.5, 1)
        writer.add_text("note", "hello", 0)
        writer.add_audio("sound", np.zeros(100, np.float32)[None], 0)
    ends = []
    for _ in range(2):
        assert main(["import", "tensorboard", str(tmp_path / "logs"), "--root", root]) == 0
        ends.append([line.split() for line in capsys.readouterr().out.splitlines() if line.strip("─━ ")])
    first, again = ends
    assert first[2:] == [
        ["taken", "count"],
        ["points", "1"],
        ["texts", "1"],
        ["not", "taken", "count"],
        ["audio", "clips", "1"],
    ]
    assert again[2:] == [["taken", "count"], ["nothing", "0"], ["not", "taken", "count"], ["nothing", "0"]]


def test_what_tensorboard_shows_of_other_files_is_counted(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_scalars(tmp_path / "logs", range(2))
    with writing(tmp_path / "logs") as writer:
        for tag in ("first", "second"):
            writer.add_embedding(np.eye(3), tag=tag)
    for name in (
        "plugins/profile/day/a.xplane.pb",
        "plugins/profile/day/b.xplane.pb",
        "plugins/profile/night/a.trace.json.gz",
    ):
        (tmp_path / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "logs" / name).write_bytes(b"")
    for name in ("host_1.123.pt.trace.json", "host_2.123.pt.trace.json.gz", "notes.json"):
        (tmp_path / "logs" / name).write_bytes(b"")
    report = run_import(capsys, "tensorboard", tmp_path / "logs", root)
    assert report["not_taken"] == {
        "embeddings of the projector": 2,
        "profiles (files beside those of events)": 4,
    }


def test_hyperparameters_belong_to_the_run_that_wrote_them(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with writing(tmp_path / "logs" / "tried") as writer:
        writer.add_scalar("loss", 0.1, 1)
        writer.add_hparams({"lr": 0.01, "layers": 3, "optimizer": "adam"}, {"final": 0.9})
    with writing(tmp_path / "logs" / "twice") as writer:
        writer.add_scalar("loss", 0.2, 1)
        writer.add_hparams({"lr": 1.0}, {"final": 0.1}, run_name="1.0")
        writer.add_hparams({"lr": 2.0}, {"final": 0.2}, run_name="2.0")
    run_import(capsys, "tensorboard", tmp_path / "logs", root)
    params = {
        info.parent["imported"]["run"]: (info.params, sorted(info.summary)) for info in list_runs(Store(root))
    }
    assert params == {
        "tried": ({"lr": 0.01, "layers": 3, "optimizer": "adam"}, ["final", "loss"]),
        "twice": ({}, ["loss"]),
        "twice/1.0": ({"lr": 1}, ["final"]),
        "twice/2.0": ({"lr": 2}, ["final"]),
    }


def test_a_second_import_takes_nothing_and_one_of_a_grown_run_what_is_new(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_scalars(tmp_path / "logs" / "a", range(10))
    log_scalars(tmp_path / "logs" / "b", range(5))
    assert outcomes(run_import(capsys, "tensorboard", tmp_path / "logs", root)) == {
        "a": ("new", 10, 0, 0),
        "b": ("new", 5, 0, 0),
    }
    assert outcomes(run_import(capsys, "tensorboard", tmp_path / "logs", root)) == {
        "a": ("unchanged", 0, 0, 0),
        "b": ("unchanged", 0, 0, 0),
    }
    a = next(info for info in list_runs(Store(root)) if info.parent["imported"]["run"] == "a")
    compact(Store(root), a.project, a.run)
    log_scalars(tmp_path / "logs" / "a", range(10, 13), filename_suffix=".resumed")
    assert outcomes(run_import(capsys, "tensorboard", tmp_path / "logs", root)) == {
        "a": ("continued", 3, 0, 0),
        "b": ("unchanged", 0, 0, 0),
    }
    assert [step for run, _, step, _, _ in points(root) if run == a.run] == list(range(13))
    grown = next(info for info in list_runs(Store(root)) if info.run == a.run)
    assert [(attempt.number, attempt.status) for attempt in grown.attempts] == [
        (1, "finished"),
        (2, "finished"),
    ]


def test_an_import_that_is_stopped_anywhere_goes_on_there_and_takes_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_run, "PIECE_POINTS", 4)
    log_scalars(tmp_path / "logs" / "a", range(10))
    with writing(tmp_path / "logs" / "a", filename_suffix=".more") as writer:
        writer.add_text("note", "hello", 3)
        writer.add_scalar("acc", 0.5, 3)
    whole = str(tmp_path / "whole")
    with small_disk() as written:
        run_import(capsys, "tensorboard", tmp_path / "logs", whole)
    everything = (points(whole), media(whole))
    number = len(written)
    assert number == 6  # the record, three segments, a medium, the end
    for stopped in range(number):
        root = str(tmp_path / f"stopped{stopped}")
        with small_disk(stopped):
            assert (
                outcomes(run_import(capsys, "tensorboard", tmp_path / "logs", root, status=1))["a"][0]
                == "failed"
            )
        assert outcomes(run_import(capsys, "tensorboard", tmp_path / "logs", root))["a"][0] == (
            "continued" if stopped else "new"
        )
        assert (points(root), media(root)) == everything
        (info,) = list_runs(Store(root))
        assert [attempt.status for attempt in info.attempts] == ["finished"]


def test_a_file_that_is_being_written_gives_its_complete_records_and_later_the_rest(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_scalars(tmp_path / "logs", range(4))
    path = events_file(tmp_path / "logs")
    content = path.read_bytes()
    ends = [record.end for record in records(path)]
    for cut in range(ends[-3], len(content)):
        path.write_bytes(content[:cut])
        complete = sum(end <= cut for end in ends) - 1  # the first record has the file's version
        assert len(list(records(path))) == complete + 1, cut
        # Import only what is cut near a record's edge, within its header, or at the header's end.
        if cut not in {edge + near for edge in ends for near in (-1, 0, 1, 11, 12)}:
            continue
        report = run_import(capsys, "tensorboard", path, f"{root}{cut}")
        assert outcomes(report)["logs"][:2] == ("new", complete)
        path.write_bytes(content)
        assert outcomes(run_import(capsys, "tensorboard", path, f"{root}{cut}"))["logs"] == (
            "continued",
            4 - complete,
            0,
            0,
        )


def test_damage_ends_its_file_and_is_said_and_the_other_files_are_read(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_scalars(tmp_path / "logs" / "good", range(3))
    log_scalars(tmp_path / "logs" / "bad", range(3))
    path = events_file(tmp_path / "logs" / "bad")
    content = bytearray(path.read_bytes())
    ends = [record.end for record in records(path)]
    content[ends[1]] ^= 0xFF
    path.write_bytes(content)
    report = run_import(capsys, "tensorboard", tmp_path / "logs", root)
    assert outcomes(report) == {"good": ("new", 3, 0, 0), "bad": ("new", 1, 0, 0)}
    (reason,) = report["not_taken"]
    assert reason.endswith(f"is damaged from byte {ends[1]} on")


def test_the_tenth_file_of_a_second_is_no_other_run(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, steps in ((9, range(3)), (10, range(3, 5))):
        log_scalars(tmp_path / f"{number}", steps)
        (tmp_path / "logs").mkdir(exist_ok=True)
        events_file(tmp_path / f"{number}").rename(
            tmp_path / "logs" / f"events.out.tfevents.1764310000.host.77.{number}"
        )
        report = run_import(capsys, "tensorboard", tmp_path / "logs", root)
        assert outcomes(report) == {"logs": ("new", 3, 0, 0) if number == 9 else ("continued", 2, 0, 0)}


@pytest.mark.parametrize("content", [b"", b"no events"])
def test_a_run_of_which_no_event_can_be_read_is_said_and_taken_when_there_are_some(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    for run in ("good", "bad"):
        log_scalars(tmp_path / "logs" / run, range(3))
    path = events_file(tmp_path / "logs" / "bad")
    whole = path.read_bytes()
    path.write_bytes(content)
    report = run_import(capsys, "tensorboard", tmp_path / "logs", root, status=1)
    assert {run: counts[:2] for run, counts in outcomes(report).items()} == {
        "good": ("new", 3),
        "bad": ("failed", 0),
    }
    (error,) = [row["error"] for row in report["runs"] if row["error"]]
    assert f"what is in {path} is damaged from its beginning, or has not been written yet" in error
    path.write_bytes(whole)
    assert outcomes(run_import(capsys, "tensorboard", tmp_path / "logs", root))["bad"] == ("new", 3, 0, 0)


@pytest.mark.parametrize("kind", ["a file", "a folder", "a folder of hyperparameters"])
def test_an_unreadable_file_is_reported_alone_and_taken_once_it_can_be_read(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    for run in ("a", "b", "c"):
        log_scalars(tmp_path / "logs" / run, range(3))
    if kind == "a folder of hyperparameters":
        with writing(tmp_path / "logs" / "b") as writer:
            writer.add_hparams({"lr": 0.01}, {"final": 0.9}, run_name="1.5")
    place = {"a file": events_file(tmp_path / "logs" / "a"), "a folder": tmp_path / "logs" / "a"}.get(
        kind, tmp_path / "logs" / "b" / "1.5"
    )
    bad = place.relative_to(tmp_path / "logs").parts[0]
    with deny_access(place):
        report = run_import(capsys, "tensorboard", tmp_path / "logs", root, status=1)
    assert {run: counts[0] for run, counts in outcomes(report).items()} == {
        run: "failed" if run == bad else "new" for run in "abc"
    }
    (error,) = [row["error"] for row in report["runs"] if row["error"]]
    assert f"{place} cannot be read: Permission denied" in error
    again = run_import(capsys, "tensorboard", tmp_path / "logs", root)
    assert {run: counts[0] for run, counts in outcomes(again).items()} == {
        run: "new" if run == bad else "unchanged" for run in "abc"
    }
    params = {info.parent["imported"]["run"]: info.params for info in list_runs(Store(root))}
    assert params == {"a": {}, "b": {"lr": 0.01} if kind == "a folder of hyperparameters" else {}, "c": {}}


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf, 1e300, -1e300])
def test_impossible_times_and_damaged_hyperparameters_are_counted_the_rest_read(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str], time: float
) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.summary.writer.record_writer import RecordWriter

    log_scalars(tmp_path / "logs" / "good", range(3))
    (tmp_path / "logs" / "bad").mkdir()
    metadata = SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name="hparams", content=b"\xff\xff")
    )
    damaged = Summary.Value(tag="_hparams_/session_start_info", metadata=metadata)
    values = [Summary.Value(tag="loss", simple_value=value) for value in (0.5, 0.25)]
    with (tmp_path / "logs" / "bad" / "events.out.tfevents.7").open("wb") as file:
        writer = RecordWriter(file)
        for step, (when, value) in enumerate([(time, values[0]), (TIME, damaged), (TIME, values[1])]):
            writer.write(Event(wall_time=when, step=step, summary=Summary(value=[value])).SerializeToString())
        writer.flush()
    report = run_import(capsys, "tensorboard", tmp_path / "logs", root)
    assert outcomes(report) == {"good": ("new", 3, 0, 0), "bad": ("new", 1, 0, 0)}
    late, hyperparameters = sorted(report["not_taken"].items(), key=lambda item: "damaged" in item[0])
    assert late == ("points with a time that no calendar has", 1)
    assert (hyperparameters[0].startswith("hyperparameters in "), hyperparameters[1]) == (True, 1)


def test_the_name_of_a_run_that_was_trained_here_is_not_taken(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_scalars(tmp_path / "logs", range(3))
    run = run_import(capsys, "tensorboard", tmp_path / "logs", f"{root}-other")["runs"][0]["run"]
    halving.init("logs", root=root, id=run, system_metrics=None).finish()
    report = run_import(capsys, "tensorboard", tmp_path / "logs", root, status=1)
    assert (
        "is a run that was trained here already; take another project with --project NAME"
        in report["runs"][0]["error"]
    )
    assert (
        outcomes(run_import(capsys, "tensorboard", tmp_path / "logs", root, "--project", "elsewhere"))[
            "logs"
        ][0]
        == "new"
    )


@pytest.mark.parametrize("source", ["missing", "."])
def test_a_source_without_event_files_is_refused(
    source: str,
    tmp_path: Path,
    root: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert main(["import", "tensorboard", source, "--root", root]) == 1
    assert f"source '{source}' is not accepted: give a folder with event files" in capsys.readouterr().err
    assert not Path(root).exists()


def test_without_tensorboard_the_command_says_how_to_install_it(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    assert main(["import", "tensorboard", str(tmp_path), "--root", root]) == 1
    assert "pip install 'halving[tensorboard]'" in capsys.readouterr().err
