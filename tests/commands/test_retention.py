"""Automatic retention after a sweep's command: in its own process, in one line, and harmless to the sweep."""

import argparse
import io
import json
from contextlib import redirect_stdout
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from commands import retention as retention_command
from commands.retention import clear_away
from halving import Store
from halving.cli.main import main
from halving.maintenance import daily
from halving.metrics.manifest import read_manifest
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from resources.backend import Backend
from resources.retention.carry_out import carry_out
from resources.retention.policy_file import load_policy
from tests.sdk.metric_files import write_segment


@pytest.fixture
def old_backend(backend: Backend) -> Backend:
    """A store for which somebody has asked on an earlier day."""
    assert daily.begin_daily(backend.store, date(2026, 1, 1)) is None
    return backend


def clear_away_output(backend: Backend) -> str:
    out = io.StringIO()
    clear_away(Console(file=out, width=200), backend.store)
    return out.getvalue()


@pytest.mark.slow
def test_after_a_sweep_old_data_goes_once_a_day_and_a_line_says_so(
    old_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The points of a run that has ended are in one file then: of segments nothing would ever go."""
    RunRecords(old_backend.store, "p", "a").start({}, {}, 1, {"started": now(), "provenance": {}})
    write_segment(old_backend.store, "a", 1, 0, [("loss", step, step, 0.5) for step in range(10)], "p")
    RunRecords(old_backend.store, "p", "a").end(1, {"status": "finished", "summary": {}})
    monkeypatch.setattr(retention_command, "_WAIT_SECONDS", 300.0)
    change = "a file retention.yaml in the store changes what is kept"
    log = Path(old_backend.store.address(daily.LOG))
    assert (
        clear_away_output(old_backend) == f"old data: nothing had to go, by the shipped default; {change}\n"
    ), log.read_text()
    assert log.read_text().splitlines()[-1].startswith("old data: nothing had to go, by the shipped default")
    assert read_manifest(old_backend.store, "p", "a").full is not None
    assert clear_away_output(old_backend) == ""


def test_a_wrong_policy_is_said_and_nothing_else_happens(old_backend: Backend) -> None:
    old_backend.store.create("retention.yaml", b"automatic: perhaps")
    assert clear_away_output(old_backend).startswith("retention was left out: the retention policy ")
    assert not old_backend.store.exists(daily.LOG)


def test_a_young_store_is_left_alone(backend: Backend) -> None:
    assert clear_away_output(backend) == ""
    assert not backend.store.exists(daily.LOG)


def test_what_is_not_due_says_why(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    backend.store.create("retention.yaml", b"checkpoints: {days: 3}")
    assert main(["retention", "--if-due", "--root", backend.store.root]) == 0
    assert capsys.readouterr().out == "nothing is done: the policy does not say automatic: true\n"


def test_what_moved_to_the_cold_tier_is_not_said_to_be_deleted(backend: Backend, tmp_path: Path) -> None:
    records = RunRecords(backend.store, "p", "a")
    records.start({}, {}, 1, {"provenance": {}, "started": now()})
    records.add_artifact("weights", backend.store.put_blob(b"weights"), 7)
    backend.store.create("retention.yaml", f"cold: {{days: 30, root: {tmp_path}/cold}}".encode())
    file = load_policy(backend.store)
    later = datetime.now(UTC) + timedelta(days=40)
    said = []
    for dry_run in (True, False):
        done = carry_out(backend.store, backend.catalog, file, dry_run=dry_run, now=later)
        assert (done.bytes, done.moved_bytes) == (0, 7)
        out = io.StringIO()
        with redirect_stdout(out):
            retention_command._print(argparse.Namespace(json=False), done)
        said.append(out.getvalue().splitlines()[-1])
    assert said == [
        "0 B would go, 7 B would move to the cold tier; without --dry-run it goes",
        "0 B deleted, 7 B moved to the cold tier",
    ]


@pytest.mark.parametrize(
    "command",
    [
        "retention",
        "retention --dry-run",
        "retention --if-due",
        "backup place",
        "index",
        "compact --all --workers 2",
    ],
)
def test_a_root_that_is_misspelt_is_refused_and_not_made(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "typo"
    assert main([*command.split(), "--root", str(root)]) == 1
    assert (
        f"root = '{root}' is not accepted: there is no such folder; name a store by --root or HALVING_ROOT"
        in capsys.readouterr().err
    )
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_makes_no_catalog_and_names_faults_of_policy_and_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    RunRecords(store, "digits", "a").start({}, {}, 1, {"started": now(), "provenance": {}})
    store.create("runs/project=digits/b/record.json", b"{")
    store.create("retention.yaml", b"projects: {digitz: {checkpoints: {days: 3}}}")
    files = sorted(store.files(""))
    assert main(["retention", "--dry-run", "--root", store.root]) == 0
    said = capsys.readouterr().out
    assert "note: the policy names a project that there is not: digitz; did you mean digits?" in said
    assert f"note: {store.address('runs/project=digits/b/record.json')} is damaged: " in said
    assert main(["retention", "--dry-run", "--json", "--root", store.root]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["unknown_projects"], data["catalog"], len(data["problems"])) == (
        {"digitz": "digits"},
        None,
        2,
    )
    assert main(["retention", "--explain", "digits/a", "--root", store.root]) == 0
    assert sorted(store.files("")) == files


def test_what_nobody_asks_for_makes_no_catalog_and_cleans_a_store_of_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HALVING_CATALOG", raising=False)
    store = Store(tmp_path)
    RunRecords(store, "p", "a").start({}, {}, 1, {"started": now(), "provenance": {}})
    write_segment(store, "a", 1, 0, [("loss", step, step, 0.5) for step in range(10)], "p")
    RunRecords(store, "p", "a").end(1, {"status": "finished", "summary": {}})
    assert main(["retention", "--if-due", "--root", store.root]) == 0
    assert store.exists("retention/last.json")
    assert read_manifest(store, "p", "a").full is not None
    assert not (tmp_path / "catalog.db").exists()
    assert main(["retention", "--root", store.root]) == 0
    assert (tmp_path / "catalog.db").exists()


def test_no_catalog_is_made_where_another_one_has_the_sweeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    RunRecords(store, "digits", "digits-1.0000").start(
        {}, {"sweep": "digits-1"}, 1, {"started": now(), "provenance": {}}
    )
    files = sorted(store.files(""))
    for options in ([], ["--dry-run"]):
        assert main(["retention", *options, "--root", store.root]) == 1
        said = capsys.readouterr().err
        assert (
            f"a new catalog for the store {store.root} is not accepted: it has no sweep digits-1, of which "
            "the store"
        ) in said
        assert "Set HALVING_CATALOG to the store's catalog." in said
    assert sorted(store.files("")) == files


def test_a_run_that_is_deleted_under_a_wrong_policy_is_said_to_be(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    records = RunRecords(backend.store, "p", "a")
    records.start({}, {}, 1, {"started": now(), "provenance": {}})
    records.end(1, {"status": "finished", "summary": {}})
    backend.store.create("retention.yaml", b"trash: {days: 1e7}")
    assert main(["runs", "delete", "p/a", "--root", backend.store.root]) == 0
    said = capsys.readouterr().out
    assert (
        "p/a is deleted: halving runs restore takes it back; until when is not known: the retention policy "
        in said
    )
