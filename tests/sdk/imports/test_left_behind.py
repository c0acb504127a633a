"""What file managers and notebooks leave in folders is no data of the tools whose runs are there."""

from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from halving import Store
from halving.imports.reading import LEFT_BEHIND, files_below, is_left_behind
from halving.query.runs import list_runs
from tests.permissions import deny_access
from tests.sdk.imports.copies import outcomes, points, run_import
from tests.sdk.imports.mlflow_files import write_folder
from tests.sdk.imports.wandb_files import documents, exit_record, history_record, run_record, write_run

APPLE_DOUBLE = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        "
LEFT = {
    ".DS_Store": b"\x00\x00\x00\x01Bud1",
    "._loss": APPLE_DOUBLE,
    "._meta.yaml": APPLE_DOUBLE,
    "Thumbs.db": b"\xd0\xcf\x11\xe0",
    "thumbs.db": b"\xd0\xcf\x11\xe0",
    "desktop.ini": b"[.ShellClassInfo]\r\n",
    "Desktop.ini": b"[.ShellClassInfo]\r\n",
    ".ipynb_checkpoints/lr-checkpoint": b"0.7",
    ".ipynb_checkpoints/deep/loss": b"1 0.5 1\n",
    "__MACOSX/._lr": APPLE_DOUBLE,
    "__MACOSX/deep/.DS_Store": b"",
}


def leave(folder: Path) -> None:
    for name, content in LEFT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("path", "is_left"),
    [
        *((name, True) for name in LEFT),
        *((f"deep/er/{name}", True) for name in LEFT),
        (".hidden", False),
        (".gitignore", False),
        ("_hidden", False),
        ("a._b", False),
        ("DS_Store", False),
        ("my.DS_Store", False),
        ("desktop.ini.txt", False),
        ("ipynb_checkpoints/a", False),
        ("a-checkpoint.ipynb", False),
        ("MACOSX/a", False),
        ("thumbs/db", False),
        ("...", False),
    ],
)
def test_only_what_is_left_behind_is(path: str, is_left: bool) -> None:
    assert is_left_behind(path) is is_left


def test_files_below_are_those_that_nobody_left_behind_unless_all_are_wanted(tmp_path: Path) -> None:
    own = {"loss", ".hidden", "deep/loss", "deep/a._b"}
    for name in own:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    leave(tmp_path)
    leave(tmp_path / "deep")
    assert {path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path)} == own
    every = {path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path, left_behind=True)}
    assert every == own | set(LEFT) | {f"deep/{name}" for name in LEFT}
    with deny_access(tmp_path / ".ipynb_checkpoints"):  # nobody looks there
        assert {path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path)} == own


def test_a_folder_of_mlflows_has_the_params_metrics_and_tags_that_were_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top = tmp_path / "mlruns"
    root = str(tmp_path / "store")
    write_folder(top)
    for folder in [top, *(path for path in top.rglob("*") if path.is_dir())]:
        leave(folder)
    (top / "1" / ".ipynb_checkpoints" / "meta.yaml").write_text(
        "lifecycle_stage: active\nrun_id: x\nstatus: 3\nstart_time: 1\n"
    )
    report = run_import(capsys, "mlflow", top, root)
    assert outcomes(report) == dict.fromkeys("abc", ("new", 1, 0, 1))
    assert report["not_taken"] == {
        LEFT_BEHIND: 3 * len(LEFT)
    }  # beside the artifacts, where MLflow shows them
    facts = {info.run: (info.params, info.parent.get("tags")) for info in list_runs(Store(root))}
    assert facts == dict.fromkeys("abc", ({"lr": 0.1}, None))
    assert [(run, key) for run, key, _, _, _ in points(root)] == [(run, "loss") for run in "abc"]


def test_a_folder_of_tensorboards_has_the_runs_that_were_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top = tmp_path / "logs"
    root = str(tmp_path / "store")
    event = Event(
        wall_time=1_700_000_000.0,
        step=1,
        summary=Summary(value=[Summary.Value(tag="loss", simple_value=0.5)]),
    )
    for folder in (top / "a", top / "a" / ".ipynb_checkpoints", top / "__MACOSX" / "a"):
        folder.mkdir(parents=True)
        with (folder / "events.out.tfevents.1.host").open("wb") as file:
            writer = RecordWriter(file)
            writer.write(event.SerializeToString())
            writer.flush()
    leave(top)
    leave(top / "a")
    (top / "a" / "._events.out.tfevents.1.host").write_bytes(APPLE_DOUBLE)
    report = run_import(capsys, "tensorboard", top, root)
    assert (outcomes(report), report["not_taken"]) == ({"a": ("new", 1, 0, 0)}, {})


def test_a_folder_of_wandbs_has_the_runs_and_files_that_were_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top = tmp_path / "wandb"
    root = str(tmp_path / "store")
    path = write_run(top, "a", [run_record("a"), history_record(0, {"loss": 0.5}), exit_record(0)])
    write_run(top / "__MACOSX", "b", [run_record("b"), exit_record(0)])
    (path.parent / "files").mkdir()
    (path.parent / "files" / "output.log").write_text("hello")
    for folder in (top, path.parent, path.parent / "files"):
        leave(folder)
    (path.parent / f"._{path.name}").write_bytes(APPLE_DOUBLE)
    report = run_import(capsys, "wandb", top, root)
    assert outcomes(report) == {"digits/a": ("new", 1, 0, 1)}
    assert report["not_taken"] == {LEFT_BEHIND: len(LEFT)}
    assert [file["name"] for file in documents(Store(root), "digits", "a", "artifacts/*.json")] == [
        "output.log"
    ]
