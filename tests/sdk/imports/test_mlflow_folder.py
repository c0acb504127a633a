"""Folders as MLflow writes them, made here."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from halving.cli.main import main
from halving.imports.mlflow_folder import Folder
from halving.imports.mlflow_source import Experiment, MlflowRun
from halving.query.runs import list_runs, read_run
from halving.store.store import Store
from tests.permissions import deny_access
from tests.sdk.imports.copies import outcomes, points, run_import
from tests.sdk.imports.mlflow_files import write_folder


def test_params_are_numbers_and_flags_also_of_runs_once_imported_with_texts(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path / "mlruns")
    texts = {
        "lr": "1E-4",
        "amp": "true",
        "name": "007",
        "share": "0.10",
        "huge": "1e400",
        "id": "9007199254740993",
    }
    for name, text in texts.items():
        (tmp_path / "mlruns" / "1" / "a" / "params" / name).write_text(text)
    run_import(capsys, "mlflow", str(tmp_path / "mlruns"), root)
    values = {"lr": 1e-4, "amp": True, "name": "007", "share": 0.1, "huge": "1e400", "id": 9007199254740993}
    store = Store(root)
    assert read_run(store, "of-1", "a").params == values
    record = json.loads(store.read("runs/project=of-1/a/record.json"))
    Path(root, "runs/project=of-1/a/record.json").write_text(
        json.dumps(record | {"params": values | {"lr": "1E-4", "amp": "true"}})
    )
    assert read_run(store, "of-1", "a").params == values
    assert "later changes" not in json.dumps(run_import(capsys, "mlflow", str(tmp_path / "mlruns"), root))


def test_texts_of_a_folder_keep_the_ends_of_their_lines(tmp_path: Path) -> None:
    write_folder(tmp_path)
    texts = {"unix": "a\nb\n", "windows": "a\r\nb", "old": "a\rb", "apart": "a\u2028b"}
    for kind, name in ((kind, name) for kind in ("params", "tags") for name in texts):
        (tmp_path / "1" / "a" / kind / name).write_bytes(texts[name].encode())
    first = next(iter(Folder(tmp_path).runs(Experiment("1", "of 1"))))
    assert isinstance(first, MlflowRun)
    assert (first.tags, first.params) == (texts, {"lr": "0.1", **texts})


def test_a_tag_with_the_name_of_another_fact_is_counted(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path / "mlruns")
    of_facts = {"mlflow.runName": "first", "mlflow.note.content": "of MLflow", "mlflow.user": "ada"}
    for name, text in {
        **of_facts,
        "name": "mine",
        "notes": "mine",
        "zeros": "mine",
        "source": "mine",
    }.items():
        (tmp_path / "mlruns" / "1" / "a" / "tags" / name).write_text(text)
    report = run_import(capsys, "mlflow", str(tmp_path / "mlruns"), root)
    assert read_run(Store(root), "of-1", "a").tags == {
        "name": "first",
        "notes": "of MLflow",
        "user": "ada",
        "zeros": "mine",
        "source": "mine",
    }
    assert report["not_taken"] == {"tags with the name of another fact of the run (name, notes, user, …)": 2}
    assert run_import(capsys, "mlflow", str(tmp_path / "mlruns"), root)["taken"] == {}


def test_models_of_a_folder_are_counted_as_they_were_logged_registered_and_used(tmp_path: Path) -> None:
    write_folder(tmp_path)
    sources = {
        "1/a/inputs/data": "DATASET",
        "1/a/inputs/model": "MODEL",
        "1/models/m-1": "",
        "1/models/m-2": "",
    }
    for place, source in sources.items():
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "meta.yaml").write_text(f"source_type: {source}\n")
    (tmp_path / "models" / "models" / "version-1").mkdir(parents=True)
    for place in ("models/models", "models/models/version-1"):
        (tmp_path / place / "meta.yaml").write_text("name: models\n")
    assert Folder(tmp_path).left_out() == {
        "registered models": 1,
        "logged models": 2,
        "datasets that runs used": 1,
    }
    assert [
        run.id for run in Folder(tmp_path).runs(Experiment("1", "of 1")) if isinstance(run, MlflowRun)
    ] == ["a", "b"]


FAULTS = {
    "a folder of params that is a file": ("1/a/params", b"", "1/a/params cannot be read: Not a directory"),
    "metrics that are a file": ("1/a/metrics", b"", "1/a/metrics cannot be read: Not a directory"),
    "a half-written run": (
        "1/a/meta.yaml",
        b"run_id: a\nstat",
        "1/a/meta.yaml cannot be read: its last line has no end, or not yet",
    ),
    "a run cut in a number": (
        "1/a/meta.yaml",
        b"lifecycle_stage: active\nrun_id: a\nstatus: 3\nstart_time: 17",
        "has no end, or not yet",
    ),
    "a run cut behind a line": (
        "1/a/meta.yaml",
        b"lifecycle_stage: active\nrun_id: a\nstatus: 3\n",
        "it has no start_time",
    ),
    "a status that is no number": (
        "1/a/meta.yaml",
        b"lifecycle_stage: active\nrun_id: a\nstart_time: 1\nstatus: x\n",
        "1/a/meta.yaml cannot be read: invalid literal for int() with base 10: 'x'",
    ),
    "a run without an id": (
        "1/a/meta.yaml",
        b"lifecycle_stage: active\nstart_time: 1\nstatus: 3\n",
        "1/a/meta.yaml cannot be read: it has no",
    ),
    "bytes that are no text": (
        "1/a/meta.yaml",
        b"\xff",
        "1/a/meta.yaml cannot be read: 'utf-8' codec can't decode",
    ),
    "a value that is no number": (
        "1/a/metrics/loss",
        b"1 abc 1\n",
        "1/a/metrics/loss cannot be read: could not convert string to float",
    ),
    "an empty experiment": (
        "1/meta.yaml",
        b"",
        "1/meta.yaml cannot be read: it has no lifecycle_stage, name",
    ),
    "a half-written experiment": (
        "1/meta.yaml",
        b"experiment_id: '1'\nlifecycle_stage: active\nname: o",
        "1/meta.yaml cannot be read: its last line has no end, or not yet",
    ),
    "a file of a param that may not be read": (
        "1/a/params/lr",
        None,
        "1/a/params/lr cannot be read: Permission denied",
    ),
    "a folder of params that may not be listed": (
        "1/a/params",
        None,
        "1/a/params cannot be read: Permission denied",
    ),
    "artifacts that may not be listed": (
        "1/a/artifacts",
        None,
        "1/a/artifacts cannot be read: Permission denied",
    ),
    "a run that may not be looked into": ("1/a", None, "1/a/meta.yaml cannot be read: Permission denied"),
    "an experiment that may not be looked into": ("1", None, "1/meta.yaml cannot be read: Permission denied"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_what_cannot_be_read_in_a_folder_is_reported_and_imported_later(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    place, content, said = FAULTS[fault]
    top = tmp_path / "my runs"
    write_folder(top)
    if content is None:
        with deny_access(top / place):
            report = run_import(capsys, "mlflow", top, root, status=1)
    else:
        (top / place).rename(tmp_path / "whole")
        (top / place).write_bytes(content)
        report = run_import(capsys, "mlflow", top, root, status=1)
        (top / place).unlink()
        (tmp_path / "whole").rename(top / place)
    (error,) = [row["error"] for row in report["runs"] if row["outcome"] == "failed"]
    assert said in error
    others = {"c"} if place.count("/") == 0 or place == "1/meta.yaml" else {"b", "c"}
    assert {row["name"] for row in report["runs"] if row["outcome"] == "new"} == others
    again = outcomes(run_import(capsys, "mlflow", top.as_uri(), root))  # my%20runs
    assert {run for run, counts in again.items() if counts[0] == "unchanged"} == others
    whole = {
        info.run: (info.project, info.params, info.status, info.started) for info in list_runs(Store(root))
    }
    started = list_runs(Store(root))[0].started
    assert whole == {run: (f"of-{1 + (run == 'c')}", {"lr": 0.1}, "finished", started) for run in "abc"}
    assert sorted((run, value) for run, _, _, value, _ in points(root)) == [(run, 0.5) for run in "abc"]


@pytest.mark.parametrize(
    "name", ["many words " * 20, "a: b # 'c' \"d\"", "two\nlines", "größe 007", "null", "1e3", "x" * 300]
)
def test_names_are_read_as_mlflow_writes_them(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path)
    meta = yaml.safe_load((tmp_path / "1" / "meta.yaml").read_text()) | {"name": name}
    (tmp_path / "1" / "meta.yaml").write_text(yaml.dump(meta, default_flow_style=False, allow_unicode=True))
    assert Folder(tmp_path).experiments()[0] == Experiment("1", name)


def test_without_pyyaml_a_folder_is_refused_with_what_to_install(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "mlruns")
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert main(["import", "mlflow", str(tmp_path / "mlruns"), "--root", root]) == 1
    assert "pip install 'halving[mlflow]'" in capsys.readouterr().err
