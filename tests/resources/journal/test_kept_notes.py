"""Notes outlive what they are about: backups and restores, and runs that are removed for good."""

import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import halving
from halving import Store
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.catalog import Catalog
from resources.journal import add_note, subject_of
from resources.scheduling.sweeps import pause_sweep
from resources.upkeep.backup import back_up
from resources.upkeep.restore import restore
from tests.backends import snapshot_row
from tests.postgres import Postgres
from tests.resources.journal.journals import add_all, minutes, read_all, sweep_row
from tests.resources.upkeep.backups import place_of


def test_a_restore_brings_back_notes_and_controls_and_new_ones_are_numbered_on(
    either_backend: Backend, postgres: Postgres, tmp_path: Path, small: Callable[..., dict[str, Any]]
) -> None:
    catalog = either_backend.catalog
    with catalog.write() as session:
        add_all(session, snapshot_row("sha256:a", created_at=minutes(0)))
        add_all(session, sweep_row("digits-1", small(name="digits"), 1))
        add_note(session, subject_of(session, "sweep", "digits-1"), "**why** ü", actor="ada")
    pause_sweep(catalog, "digits-1", actor="ada")
    either_backend.store.create("runs/project=digits/r/record.json", b"{}")
    back_up(either_backend.store, catalog, place_of(either_backend))
    before = read_all(catalog)
    for url in (f"sqlite:///{tmp_path}/new/catalog.db", postgres.database(f"t{secrets.token_hex(6)}")):
        with closing(Catalog(url)) as restored:
            restore(place_of(either_backend), Store(tmp_path / secrets.token_hex(3)), lambda c=restored: c)
            assert read_all(restored) == before
            with restored.write() as session:
                subject = subject_of(session, "sweep", "digits-1")
                assert add_note(session, subject, "more", actor="bob").id == 2


def test_a_note_on_a_run_is_in_its_projects_journal_when_the_run_is_gone(backend: Backend) -> None:
    root = Path(backend.store.root)
    for run in ("gone", "stays"):
        halving.init("digits", {}, root, id=run, system_metrics=None).finish()
    Refresher(backend.store, backend.catalog).refresh()
    with backend.catalog.write() as session:
        add_note(session, subject_of(session, "run", "digits/gone"), "never again", actor="ada")
    for file in sorted((root / "runs" / "project=digits" / "gone").iterdir()):
        file.unlink()
    (root / "runs" / "project=digits" / "gone").rmdir()
    Refresher(backend.store, backend.catalog).refresh()
    with backend.catalog.read() as session:
        subject = subject_of(session, "project", "digits")
    entries = read_all(backend.catalog, subject=subject)
    assert [(entry.what, entry.subject) for entry in entries if entry.subject == "digits/gone"] == [
        ("note", "digits/gone")
    ]
