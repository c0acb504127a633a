"""Runs that began again at an earlier step are imported as TensorBoard's own reader shows them."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, LogMessage, SessionLog, TaggedRunMetadata
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

import halving
from halving.imports import foreign_run
from halving.imports.foreign_run import ForeignRun, Position, Skipped
from halving.imports.tensorboard import read_runs
from tests.properties import examples
from tests.sdk.imports.copies import media, outcomes, run_import

TIME = 1_700_000_000.0
DISCARDED = "values that a restart discarded (purge_step)"
COPIED = "values that a restart has discarded since they were copied: what is copied never changes here"

Said = int | tuple[str, int]
"""What a file says: a step at which the run began again, or a name with a step."""


def of(name: str, steps: range) -> list[Said]:
    return [(name, step) for step in steps]


def write(path: Path, said: list[Said], mode: str = "wb") -> None:
    """An event file. No two values of a folder are equal: each says its file and its place there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    base = 1_000.0 * int(path.name.split(".")[3]) + (path.stat().st_size if mode == "ab" else 0)
    with path.open(mode) as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=TIME, file_version="brain.Event:2").SerializeToString())
        for place, item in enumerate(said):
            if isinstance(item, int):
                event = Event(wall_time=TIME, step=item, session_log=SessionLog(status=SessionLog.START))
            else:
                value = Summary.Value(tag=item[0], simple_value=base + place)
                event = Event(wall_time=TIME, step=item[1], summary=Summary(value=[value]))
            writer.write(event.SerializeToString())
        writer.flush()


def write_all(folder: Path, files: list[list[Said]]) -> None:
    for number, said in enumerate(files, 1):
        write(folder / f"events.out.tfevents.{number}.host", said)


def run_in(folder: Path, skipped: Skipped) -> ForeignRun:
    (run,) = read_runs(str(folder), None, skipped)
    assert isinstance(run, ForeignRun)
    return run


def read_values(
    folder: Path, skipped: Skipped, position: Position | None = None
) -> dict[tuple[str, int], float]:
    """The values of a run by name and step; of several at a step the last."""
    pieces = run_in(folder, skipped).pieces(position or {})
    points = (
        (piece.keys[code], step, value)
        for piece in pieces
        for code, step, value in zip(piece.codes, piece.steps, piece.values, strict=True)
    )
    return {(key, step): value for key, step, value in points}


def read_with_tensorboard(folder: Path) -> dict[tuple[str, int], float]:
    """The values of a run by name and step, as TensorBoard itself reads them."""
    theirs = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        (key, point.step): point.value for key in theirs.Tags()["scalars"] for point in theirs.Scalars(key)
    }


@pytest.mark.parametrize(
    ("files", "discarded"),
    [
        ([of("loss", range(11)), [5, *of("loss", range(5, 8))]], 6),
        ([of("loss", range(11)), [0, *of("loss", range(3))]], 11),
        ([of("loss", range(11)), [11, *of("loss", range(11, 13))]], 0),
        ([of("loss", range(11)), [5, *of("loss", range(5, 8))], [3, *of("loss", range(3, 5))]], 11),
        ([of("loss", range(11)), [3, *of("loss", range(3, 8))], [5, *of("loss", range(5, 7))]], 11),
        ([of("loss", range(4)), of("loss", range(4, 9)), [2, *of("loss", range(2, 4))]], 7),
        ([[*of("loss", range(4)), *of("crashed/only", range(4))], [2, *of("loss", range(2, 3))]], 4),
        ([[*of("loss", range(6)), 3, *of("loss", range(3, 5))]], 3),
        ([[*of("loss", range(6)), 3, 1, *of("loss", range(3, 5))]], 5),
        ([[0, *of("loss", range(4))]], 0),
        ([[*of("loss", range(3)), 1], [*of("loss", range(1, 5)), 4]], 3),
        ([of("loss", range(-5, 2)), [-2, *of("loss", range(-2, 0))]], 4),
        ([[("loss", 2**62), ("loss", 2**62 + 1)], [2**62 + 1, ("loss", 2**62 + 2)]], 1),
        # Without purge_step nothing is discarded; the last value of a step counts.
        ([of("loss", range(11)), of("loss", range(5, 8))], 0),
        ([of("loss", range(3)), [1]], 2),
        ([[], [1], of("loss", range(3))], 0),
    ],
)
def test_a_curve_is_tensorboards(tmp_path: Path, files: list[list[Said]], discarded: int) -> None:
    write_all(tmp_path, files)
    skipped = Skipped()
    assert read_values(tmp_path, skipped) == read_with_tensorboard(tmp_path)
    assert skipped.reasons == ({DISCARDED: discarded} if discarded else {})


_FILES = st.lists(
    st.lists(st.integers(-2, 5) | st.tuples(st.sampled_from(["a", "b"]), st.integers(-3, 6)), max_size=8),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(60))
@given(_FILES)
def test_whatever_was_logged_and_discarded_a_curve_is_tensorboards(files: list[list[Said]]) -> None:
    with TemporaryDirectory() as folder:
        write_all(Path(folder), files)
        assert read_values(Path(folder), Skipped()) == read_with_tensorboard(Path(folder))


def test_media_are_discarded_by_a_restart_too_and_later_ones_keep_their_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch.utils.tensorboard import SummaryWriter

    folder = tmp_path / "logs" / "a"
    for purged, steps in ((None, (4, 5, 6)), (5, (5, 6))):
        writer = SummaryWriter(str(folder), purge_step=purged)
        for step in steps:
            writer.add_image("samples", np.full((3, 4, 4), 10 * step + (purged or 0), np.uint8), step)
            writer.add_histogram("weights", np.arange(10.0) + (purged or 0), step)
            writer.add_text("note", f"{purged} {step}", step)
        writer.close()
        (path,) = folder.glob("events.out.tfevents.*.*.*.*")
        # Files of one second are in the order of writing, too.
        path.rename(folder / f"events.out.tfevents.{purged or 1}")
    answer = run_import(capsys, "tensorboard", tmp_path / "logs", str(tmp_path / "store"))
    assert outcomes(answer) == {"a": ("new", 0, 9, 0)}
    assert answer["not_taken"] == {DISCARDED: 6}
    there = media(str(tmp_path / "store"))
    assert [(key, step) for key, step, _, _ in there] == [
        (key, step) for key in ("note", "samples", "weights") for step in (4, 5, 6)
    ]
    assert len({digest for _, _, kind, digest in there if kind == "text"}) == 3


def test_a_restart_after_an_import_is_told_once_and_the_new_values_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs" / "a"
    root = str(tmp_path / "store")
    write_all(folder, [of("loss", range(11))])
    assert outcomes(run_import(capsys, "tensorboard", tmp_path / "logs", root)) == {"a": ("new", 11, 0, 0)}
    write_all(folder, [of("loss", range(11)), [5, *of("loss", range(5, 8))]])
    again = run_import(capsys, "tensorboard", tmp_path / "logs", root)
    assert (outcomes(again), again["not_taken"]) == ({"a": ("continued", 3, 0, 0)}, {COPIED: 6})
    curve = halving.sql(
        "select step, value from metrics where key = 'loss' order by step", root=root
    ).to_pylist()
    assert {row["step"]: row["value"] for row in curve} == {
        step: 2_000.0 + step - 4 if 5 <= step < 8 else 1_000.0 + step for step in range(11)
    }
    third = run_import(capsys, "tensorboard", tmp_path / "logs", root)
    assert (outcomes(third), third["not_taken"]) == ({"a": ("unchanged", 0, 0, 0)}, {})
    write(folder / "events.out.tfevents.2.host", [6, *of("loss", range(6, 9))], "ab")  # the same file goes on
    fourth = run_import(capsys, "tensorboard", tmp_path / "logs", root)
    assert (outcomes(fourth), fourth["not_taken"]) == ({"a": ("continued", 3, 0, 0)}, {COPIED: 2})


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 7])
def test_an_import_that_is_stopped_anywhere_knows_which_restarts_it_had_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(foreign_run, "PIECE_POINTS", at_once)
    write_all(tmp_path, [of("loss", range(11)), [5, *of("loss", range(5, 8))], [6, ("loss", 6)]])
    pieces = list(run_in(tmp_path, Skipped()).pieces({}))
    assert len(pieces) == -(-7 // at_once)
    for piece in pieces:
        skipped = Skipped()
        whole = read_with_tensorboard(tmp_path)
        rest = read_values(tmp_path, skipped, piece.position)
        assert rest.items() <= whole.items()
        assert COPIED not in skipped.reasons


def test_a_restart_in_the_folder_of_hyperparameters_is_that_folders(tmp_path: Path) -> None:
    write_all(tmp_path, [of("loss", range(4))])
    write_all(tmp_path / "1700000000.5", [[0, ("hparam/final", 0)]])
    skipped = Skipped()
    points = read_values(tmp_path, skipped)
    assert [*points] == [*of("loss", range(4)), ("hparam/final", 0)]
    assert skipped.reasons == {}


def test_profiles_and_log_messages_are_counted(tmp_path: Path) -> None:
    write_all(tmp_path, [of("loss", range(2))])
    with (tmp_path / "events.out.tfevents.1.host").open("ab") as file:
        writer = RecordWriter(file)
        for event in (
            Event(tagged_run_metadata=TaggedRunMetadata(tag="step 1")),
            Event(log_message=LogMessage(message="hello")),
        ):
            writer.write(event.SerializeToString())
        writer.flush()
    skipped = Skipped()
    assert len(read_values(tmp_path, skipped)) == 2
    assert skipped.reasons == {"profiles of steps": 1, "log messages": 1}
