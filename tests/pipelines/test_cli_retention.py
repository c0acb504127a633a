"""What a sweep's command does about old data when it is done: in a process of its own, said in a line, and never the sweep's concern."""

import argparse
import io
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from halving.records.run_record import RunRecords
from halving.store.json_files import now
from pipelines import cli_retention
from pipelines.cli_retention import clear_away
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.retention.by_itself import last_time, note
from resources.retention.carry_out import carry_out
from resources.retention.policy_file import load_policy
from tests.backends import snapshot_row


@pytest.fixture
def old(backend: Backend) -> Backend:
    """A store with a sweep of three days ago."""
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
        session.flush()
        created = datetime.now(UTC) - timedelta(days=3)
        about = {"name": "small", "project": "small", "spec": {}, "spec_digest": "d", "driver": "job", "ordinal": 0, "status": "finished"}
        session.add(SweepRow(id="small-1", snapshot="sha256:s", created_at=created, **about))
    return backend


def said(backend: Backend, home: Path) -> str:
    out = io.StringIO()
    (home / "logs").mkdir(parents=True, exist_ok=True)
    clear_away(Console(file=out, width=200), backend, home)
    return out.getvalue()


@pytest.mark.slow
def test_after_a_sweep_old_data_goes_once_a_day_and_a_line_says_so(old: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_retention, "_MOMENT", 300.0)
    change = "a file retention.yaml in the store changes what is kept"
    assert said(old, tmp_path) == f"old data: nothing had to go, by the shipped default; {change}\n", (
        tmp_path / "logs/retention.log"
    ).read_text()
    assert said(old, tmp_path) == ""


def test_a_wrong_policy_is_said_and_nothing_else_happens(old: Backend, tmp_path: Path) -> None:
    old.store.create("retention.yaml", b"automatic: perhaps")
    assert said(old, tmp_path).startswith("retention was left out: the retention policy ")
    assert not (tmp_path / "logs/retention.log").exists()


def test_a_young_store_is_left_alone(backend: Backend, tmp_path: Path) -> None:
    assert said(backend, tmp_path) == ""


def test_what_moved_to_the_cold_tier_is_not_said_to_be_deleted(backend: Backend, tmp_path: Path) -> None:
    records = RunRecords(backend.store, "p", "a")
    records.start({}, {}, 1, {"provenance": {}, "started": now()})
    records.add_artifact("weights", backend.store.put_blob(b"weights"), 7)
    backend.store.create("retention.yaml", f"cold: {{days: 30, root: {tmp_path}/cold}}".encode())
    file, later = load_policy(backend.store), datetime.now(UTC) + timedelta(days=40)
    said = []
    for dry_run in (True, False):
        done = carry_out(backend.store, backend.catalog, file, dry_run=dry_run, now=later)
        assert (done.bytes, done.moved_bytes) == (0, 7)
        out = io.StringIO()
        with redirect_stdout(out):
            cli_retention._print(argparse.Namespace(json=False), done)
        said.append(out.getvalue().splitlines()[-1])
    assert said == ["0 B would go, 7 B would move to the cold tier; without --dry-run it goes", "0 B deleted, 7 B moved to the cold tier"]
    note(backend.store, done)
    assert cli_retention._went(last_time(backend.store) or {}) == "1 blobs moved to the cold tier"
