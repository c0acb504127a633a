"""A whole sweep with its store on S3 and its catalog on Postgres, whose secrets leave no trace."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pyarrow import fs
from sqlalchemy import select

import halving
from halving import Store
from halving.cli.main import main
from halving.query.api import sql
from halving.query.runs import list_runs
from halving.records.run_record import RunRecords
from halving.store.store import digest_of
from resources.analysis.trial_curves import curves
from resources.catalog import ModelVersionRow, SweepRow
from resources.evaluation.report import report_path
from tests import trainables
from tests.backends import SMALL, Dagster
from tests.postgres import Postgres
from tests.s3 import CREDENTIALS, S3

pytestmark = [pytest.mark.smoke, pytest.mark.xdist_group("sweep on s3")]
PASSWORD = secrets.token_hex(20)


class Executed:
    """A sweep that was executed, and where."""

    def __init__(self, folder: Path, s3: S3, postgres: Postgres) -> None:
        self.s3 = s3
        self.bucket = secrets.token_hex(6)
        self.folder = folder
        # which trusts everybody
        catalog = postgres.database(f"t{self.bucket}").replace("tests@", f"tests:{PASSWORD}@")
        self.dagster = Dagster(folder, s3.root(self.bucket), catalog)
        self.backend = self.dagster.backend
        config = folder / "sweep.yaml"
        config.write_text(yaml.safe_dump({**SMALL, "max_trials": 4}))
        self.process = self.dagster.execute_sweep(config)

    @property
    def store(self) -> Store:
        return self.backend.store

    def objects(self) -> dict[str, bytes]:
        """Everything in the bucket, by its path."""
        filesystem = self.s3.filesystem()
        infos = filesystem.get_file_info(fs.FileSelector(f"halving-{self.bucket}", recursive=True))
        return {
            info.path: filesystem.open_input_stream(info.path).read()
            for info in infos
            if info.type == fs.FileType.File
        }


@pytest.fixture(scope="module")
def executed_sweep(
    tmp_path_factory: pytest.TempPathFactory, s3: S3, postgres: Postgres
) -> Iterator[Executed]:
    executed = Executed(tmp_path_factory.mktemp("s3"), s3, postgres)
    yield executed
    executed.backend.catalog.close()


def test_a_sweep_runs_to_its_champion_with_every_file_on_s3(executed_sweep: Executed) -> None:
    assert executed_sweep.process.returncode == 0, executed_sweep.process.stderr[-3000:]
    with executed_sweep.backend.catalog.read() as session:
        (sweep,) = session.scalars(select(SweepRow))
        (version,) = session.scalars(select(ModelVersionRow))
    assert sweep.status == "finished"
    assert "model small 1.0.0 is champion" in executed_sweep.process.stderr
    assert executed_sweep.store.get_blob(version.checkpoint)
    assert executed_sweep.store.read(report_path(sweep.id)).startswith(b"<!doctype html>")
    assert not (executed_sweep.folder / "root").exists()


def test_its_runs_and_curves_are_read_from_s3(executed_sweep: Executed) -> None:
    store = executed_sweep.store
    runs = list_runs(store, "small")
    assert len(runs) == 4
    assert {run.status for run in runs} <= {"paused", "finished"}
    longest = max(runs, key=lambda run: run.attempts[-1].epoch or 0)
    table = curves(store, "small", [longest.run], "train/loss")
    assert table["step"].to_pylist() == list(range(1, (longest.attempts[-1].epoch or 0) + 1))
    (counted,) = sql(
        "SELECT count(*) AS points FROM metrics WHERE key = 'train/loss'", root=store
    ).to_pylist()
    assert counted["points"] == sum(
        saved.epoch for run in runs if (saved := RunRecords(store, "small", run.run).latest_checkpoint())
    )


def test_its_champion_is_found_loaded_and_exported_from_s3_while_the_catalog_is_away(
    executed_sweep: Executed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_ROOT", executed_sweep.store.root)
    monkeypatch.setenv("HALVING_CATALOG", "postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    champion = halving.resolve("small@champion")
    assert digest_of(executed_sweep.objects()[champion.uri.removeprefix("s3://")]) == champion.digest
    assert list(halving.load_model("small@champion").predict({"x": [0.1, 0.9]})) == ["low", "high"]
    assert main(["models", "export", "small@champion", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/code/tests/trainables.py").read_text() == Path(trainables.__file__).read_text()
    assert set(json.loads((tmp_path / "out/predictions.json").read_text())) <= {"low", "high"}


def test_no_credential_is_in_a_record_an_event_or_a_log(executed_sweep: Executed) -> None:
    written = executed_sweep.objects() | {
        str(path): path.read_bytes() for path in executed_sweep.folder.rglob("*") if path.is_file()
    }
    written["output"] = (executed_sweep.process.stdout + executed_sweep.process.stderr).encode()
    assert len(written) > 20
    for secret in (PASSWORD, CREDENTIALS["AWS_SECRET_ACCESS_KEY"]):
        assert [name for name, content in written.items() if secret.encode() in content] == []
    record = json.loads(next(content for path, content in written.items() if path.endswith("/record.json")))
    assert record["provenance"]["command"]
