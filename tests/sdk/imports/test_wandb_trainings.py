"""``halving import wandb``: folders that W&B itself wrote."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from halving import Store
from halving.query.curve_stats import fill_last
from halving.query.runs import read_run
from tests.sdk.imports.tools import python_with
from tests.sdk.imports.wandb_files import (
    documents,
    logged_of,
    points_of,
)
from tests.sdk.imports.wandb_imports import Import, age, outcomes

WANDB = "wandb==0.31.0"
STEPS = 30


# ---- folders that W&B wrote ----

TRAINING = """
import math, os, signal, sys, time
from pathlib import Path
import numpy as np
import wandb

how, run_id, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
run = wandb.init(
    project="My digits", id=run_id, name="a nice name", group="g", job_type="train", notes="two\\nlines",
    tags=["first", "second"],
    config={"lr": 0.1, "opt": {"name": "sgd", "betas": [0.9, 0.99]}, "none": None},
    resume="allow" if how == "resume" else None,
)
run.config.update({"late": 5})
run.define_metric("acc", summary="max")
run.define_metric("valid/*", step_metric="epoch")
if how == "kill":
    log = Path(run.dir).parent / f"run-{run_id}.wandb"
    step = 0
    while log.stat().st_size < 3 * 32768:  # W&B's own process writes whole blocks, some time later
        run.log({"loss": 1 / (step + 1), "pad": "x" * 500})
        step += 1
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)
noise = np.random.default_rng(0)
pixels = lambda: noise.integers(0, 255, (8, 9, 3), dtype=np.uint8)
for step in range(steps):
    run.log({
        "loss": 1 / (step + 1), "flag": step % 2 == 0, "train/acc": np.float32(0.5),
        "nan": math.nan, "inf": -math.inf,
        "nested": {"a": step, "b": {"c": 2}}, "acc": 1 / (step + 1), "valid/loss": step, "epoch": step,
    })
if how != "resume":
    from PIL import Image
    Image.new("L", (4, 4)).save("clip.gif", save_all=True, append_images=[Image.new("L", (4, 4), 255)])
    import wave
    with wave.open("tone.wav", "wb") as tone:
        tone.setparams((1, 2, 8_000, 0, "NONE", "NONE"))
        tone.writeframes(bytes(1_600))
    run.log({
        "image": wandb.Image(pixels(), caption="said"),
        "jpeg": wandb.Image(pixels(), file_type="jpg"),
        "several": [wandb.Image(pixels(), caption=f"c{n}") for n in range(3)],
        "histogram": wandb.Histogram(np_histogram=([3, 1, 2], [0.0, 0.5, 1.0, 1.5])),
        "table": wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]]),
        "text": "some words",
        "page": wandb.Html("<b>x</b>", inject=False),
        "pages": [wandb.Html(f"<b>{n}</b>", inject=False) for n in range(2)],
        "clip": wandb.Video("clip.gif", format="gif", caption="a clip"),
        "tone": wandb.Audio("tone.wav", caption="a tone"),
        "list": [1, 2, 3],
    }, step=1000)
run.summary["best"] = 0.9
run.summary["loss"] = 0.25
run.alert("title", "text")
Path("weights.txt").write_text("weights")
run.save("weights.txt")
if how == "fail":
    sys.exit(3)  # which W&B sees; it does not see a SystemExit that is raised
run.finish()
"""


@pytest.fixture(scope="session")
def wandb_python() -> Path:
    """An interpreter that has W&B, in an environment of its own that is kept for the next time."""
    return python_with("wandb", WANDB, "numpy", "pillow")


Training = Callable[..., int]


def trainer(python: Path, folder: Path) -> Training:
    """Run the training in a folder; its W&B folder is ``wandb`` in it. Gives the status."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "training.py").write_text(TRAINING)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    own = {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_DATA_DIR": str(folder / "data"),
    }

    def run(how: str, run_id: str, steps: int = STEPS) -> int:
        command = [str(python), "training.py", how, run_id, str(steps)]
        return subprocess.run(
            command, cwd=folder, env=clean | own, capture_output=True, timeout=120, check=False
        ).returncode

    return run


@pytest.fixture(scope="session")
def wandb_runs(wandb_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of W&B's with a run that finished, one that failed and one that was killed. Tests copy it."""
    folder = tmp_path_factory.mktemp("wandb-runs")
    train = trainer(wandb_python, folder)
    assert train("finish", "good") == 0
    assert train("fail", "bad") == 3
    assert train("kill", "killed") == -signal.SIGKILL
    age(next(folder.glob("wandb/offline-run-*/run-killed.wandb")))
    return folder / "wandb"


@pytest.fixture
def runs(wandb_runs: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "wandb"
    shutil.copytree(wandb_runs, folder, symlinks=True)
    return folder


def expected_points(steps: int = STEPS, first: int = 0) -> list[tuple[str, int, str]]:
    """What the training logs, as numbers."""
    rows = []
    for number in range(steps):
        values = {
            "loss": 1 / (number + 1),
            "flag": float(number % 2 == 0),
            "train/acc": 0.5,
            "nan": float("nan"),
            "inf": float("-inf"),
            "nested/a": float(number),
            "nested/b/c": 2.0,
            "acc": 1 / (number + 1),
            "valid/loss": float(number),
            "epoch": float(number),
        }
        rows += [(key, first + number, str(value)) for key, value in values.items()]
    return sorted(rows)


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_what_wandb_logged_is_what_the_store_has(runs: Path, store: Store, importer: Import) -> None:
    report = importer(runs)
    assert outcomes(report) == {"good": "new", "bad": "new", "killed": "new"}
    for run in ("good", "bad"):
        assert logged_of(store, "My-digits", run) == expected_points()
        media = documents(store, "My-digits", run, "media/*.json")
        kinds = Counter(medium["kind"] for medium in media)
        assert kinds == {
            "image": 5,
            "histogram": 1,
            "table": 1,
            "text": 1,
            "html": 3,
            "video": 1,
            "audio": 1,
        }
        assert {medium["key"] for medium in media if medium["kind"] == "image"} == {
            "image",
            "jpeg",
            *(f"several/{n}" for n in range(3)),
        }
        assert {medium["step"] for medium in media} == {1000}
        by_key = {medium["key"]: medium for medium in media}
        assert (by_key["image"]["caption"], by_key["image"]["width"], by_key["image"]["height"]) == (
            "said",
            9,
            8,
        )
        assert [by_key[f"several/{n}"]["caption"] for n in range(3)] == ["c0", "c1", "c2"]
        assert by_key["jpeg"]["media_type"] == "image/jpeg"
        assert json.loads(store.get_blob(by_key["histogram"]["digest"]))["counts"] == [3, 1, 2]
        assert (by_key["table"]["rows"], by_key["table"]["columns"]) == (2, 2)
        assert store.get_blob(by_key["text"]["digest"]) == b"some words"
        assert store.get_blob(by_key["pages/1"]["digest"]) == b"<b>1</b>"
        assert (by_key["clip"]["caption"], by_key["clip"]["frames"]) == ("a clip", 2)
        assert (by_key["tone"]["caption"], by_key["tone"]["sample_rate"]) == ("a tone", 8_000)
        (picture,) = runs.glob(f"*-{run}/files/media/images/image_*")
        assert store.get_blob(by_key["image"]["digest"]) == picture.read_bytes()
    axes = "x axes of their own (define_metric with step_metric; the values are taken)"
    assert report["not_taken"] == {
        "lists in a history": 2,
        "alerts": 2,
        axes: 3,
    }


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_a_runs_summary_is_what_it_shows_as_its_values(runs: Path, store: Store, importer: Import) -> None:
    importer(runs)
    (info,) = fill_last(store, [read_run(store, "My-digits", "good")])
    assert {name: info.summary[name] for name in ("best", "loss", "acc", "acc/max")} == {
        "best": 0.9,
        "loss": 0.25,
        "acc": 1 / STEPS,
        "acc/max": 1.0,
    }
    (killed,) = fill_last(store, [read_run(store, "My-digits", "killed")])
    assert killed.summary["loss"] == 1 / sum(
        key == "loss" for key, _, _ in logged_of(store, "My-digits", "killed")
    )


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_who_how_and_where_are_recorded(runs: Path, store: Store, importer: Import) -> None:
    importer(runs)
    (record,) = documents(store, "My-digits", "good", "record.json")
    assert record["params"] == {
        "lr": 0.1,
        "opt": {"name": "sgd", "betas": [0.9, 0.99]},
        "none": None,
        "late": 5,
    }
    expected = {
        "name": "a nice name",
        "group": "g",
        "job_type": "train",
        "notes": "two\nlines",
        "first": "true",
        "second": "true",
    }
    assert record["parent"]["tags"] == expected
    origin = record["parent"]["imported"]
    assert (origin["tool"], origin["run"]) == ("wandb", "My digits/good")
    provenance = record["provenance"]
    assert provenance["python"]["version"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
    assert provenance["packages"]["wandb"] == WANDB.partition("==")[2]
    assert provenance["command"][1:][-3:] == ["finish", "good", str(STEPS)]
    assert provenance["hardware"]["cpus"] >= 1
    statuses = {
        run: documents(store, "My-digits", run, "end-*.json")[-1]["status"]
        for run in ("good", "bad", "killed")
    }
    assert statuses == {"good": "finished", "bad": "failed", "killed": "crashed"}
    names = {row["name"] for row in documents(store, "My-digits", "good", "artifacts/*.json")}
    assert {"requirements.txt", "weights.txt"} <= names
    assert any(row["key"].startswith("system/") for row in points_of(store, "My-digits", "good"))


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_of_a_killed_run_everything_that_wandb_wrote_is_there_without_gaps(
    runs: Path, store: Store, importer: Import
) -> None:
    importer(runs)
    losses = [(step, value) for key, step, value in logged_of(store, "My-digits", "killed") if key == "loss"]
    assert len(losses) > 50
    assert losses == [(step, str(1 / (step + 1))) for step in range(len(losses))]


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_a_second_import_changes_nothing(runs: Path, store: Store, importer: Import) -> None:
    importer(runs)
    before = {path: path.read_bytes() for path in Path(store.root).rglob("*") if path.is_file()}
    report = importer(runs)
    assert set(outcomes(report).values()) == {"unchanged"}
    assert report["not_taken"] == {}
    assert {path: path.read_bytes() for path in Path(store.root).rglob("*") if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_a_resumed_run_goes_on_with_what_is_new(
    wandb_python: Path, wandb_runs: Path, tmp_path: Path, store: Store, importer: Import
) -> None:
    folder = tmp_path / "again"
    folder.mkdir()
    shutil.copytree(wandb_runs, folder / "wandb", symlinks=True)
    importer(folder / "wandb")
    assert trainer(wandb_python, folder)("resume", "good", 5) == 0
    report = importer(folder / "wandb")
    assert outcomes(report) == {"good": "continued", "bad": "unchanged", "killed": "unchanged"}
    # W&B offline knows nothing of the earlier steps, so they begin with 0 again; the attempt tells them
    # apart.
    assert logged_of(store, "My-digits", "good") == sorted(expected_points() + expected_points(5))
    second = [
        row
        for row in points_of(store, "My-digits", "good")
        if row["attempt"] == 2 and not row["key"].startswith("system/")
    ]
    assert len(second) == len(expected_points(5))


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_a_grown_run_gives_only_what_is_new(runs: Path, store: Store, importer: Import) -> None:
    (path,) = runs.glob("*-good/*.wandb")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 4])
    first = {row["run"]: row for row in importer(runs)["runs"]}["good"]
    assert 0 < first["points"] < len(expected_points())
    path.write_bytes(whole)
    assert outcomes(importer(runs))["good"] == "continued"
    assert logged_of(store, "My-digits", "good") == expected_points()
    assert len(documents(store, "My-digits", "good", "media/*.json")) == 13
    assert documents(store, "My-digits", "good", "end-*.json")[-1]["status"] == "finished"


KILLED_IMPORTS = """
import os, signal, sys
import pyarrow.parquet
from halving.cli.main import main
from halving.imports import copying, foreign_run, wandb_folder
from halving.store.store import Store

foreign_run.PIECE_POINTS = 20
every, root = int(sys.argv[1]), sys.argv[3]
left = killed = 0
create, put = Store.create, Store.put_blob

def counted(function):
    def call(*arguments, **named):
        global left
        done = function(*arguments, **named)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return call

Store.create, Store.put_blob = counted(create), counted(put)
while True:
    # Later each time, so that a process that has to write something again comes further than the one before.
    left += every
    if not (child := os.fork()):
        sys.exit(main(["import", "wandb", sys.argv[2], "--root", root, "--json"]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != -signal.SIGKILL:
        print(killed)
        sys.exit(status)
    killed += 1
"""


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
@pytest.mark.parametrize("every", [1, 2, 5])
def test_an_import_that_is_killed_again_and_again_takes_all_and_nothing_twice(
    runs: Path, store: Store, importer: Import, tmp_path: Path, every: int
) -> None:
    for path in runs.glob("offline-run-*-killed"):
        shutil.rmtree(path)
    # Forks of one process, which has imported what all of them need.
    command = [sys.executable, "-c", KILLED_IMPORTS, str(every), str(runs), store.root]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed = int(done.stdout.splitlines()[-1])
    assert killed >= 3
    for run in ("good", "bad"):
        assert logged_of(store, "My-digits", run) == expected_points()
        assert len(documents(store, "My-digits", run, "media/*.json")) == 13
    assert set(outcomes(importer(runs)).values()) == {"unchanged"}
