"""Checks of what the catalog and the store say of each other."""

import random
from collections.abc import Iterator
from functools import partial

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from halving import Store
from halving.data.dataset import snapshot_folder
from halving.doctor.checks import ERROR, OK, WARNING, Finding
from halving.query.runs import in_threads, list_names
from resources.analysis.run_index import Refresher
from resources.catalog import Catalog, ModelVersionRow, ReportRow, RunRow, SnapshotRow, SweepRow, TrialRow
from resources.registry.publishing import behind, publish

_SAMPLE = 200
_SHOWN = 5
_BACKUP = "bring it back from a backup: halving restore"


def check_files(store: Store, catalog: Catalog, *, whole: bool = False) -> Iterator[Finding]:
    """That the store has what the catalog names: of models, reports and snapshots in use all; of paused trials a sample, or all."""
    with catalog.read() as session:
        named = [*_of_models(session), *_of_snapshots(session)]
        paused = _of_paused_trials(session)
    named += paused if whole else random.sample(paused, min(_SAMPLE, len(paused)))
    is_there = in_threads(lambda one: store.has_blob(one[0]) if one[0].startswith("sha256:") else store.exists(one[0]), named)
    gone = [one for one, there in zip(named, is_there, strict=True) if not there]
    for name, what, means, mend in gone[:_SHOWN]:
        yield Finding(ERROR, f"{what} is not in the store: {name}", means, mend)
    if len(gone) > _SHOWN:
        yield Finding(ERROR, f"{len(gone) - _SHOWN} more that the catalog names are not in the store", gone[_SHOWN][2], _BACKUP)
    if not gone:
        yield Finding(OK, f"the store has the {len(named)} checkpoints, reports and snapshots of the catalog that were looked for")


def check_published(store: Store, catalog: Catalog) -> Iterator[Finding]:
    """That the store says of models what the catalog says."""
    with catalog.read() as session:
        late = behind(session)
    if not late:
        yield Finding(OK, "what the store says of models is what the catalog says")
        return
    yield Finding(
        WARNING,
        f"the store does not say yet what the catalog says of {', '.join(late[:_SHOWN])}",
        "halving.resolve(…) finds the champion before",
        "any command of the registry, or a server, writes it",
        partial(_published, store, catalog, late),
    )


def check_index(store: Store, catalog: Catalog) -> Iterator[Finding]:
    """That the index has the store's runs, by their number."""
    stored = len(list_names(store))
    with catalog.read() as session:
        indexed = session.scalar(select(func.count()).select_from(RunRow)) or 0
    if stored == indexed:
        yield Finding(OK, f"the index has the {stored} runs of the store")
        return
    yield Finding(
        WARNING,
        f"the index has {indexed} runs, and the store {stored}",
        "the page's tables and filters lack some, or show deleted ones; a server brings it up to date by itself",
        "halving index",
        lambda: f"the index has {Refresher(store, catalog).refresh().runs} runs now",
    )


Named = tuple[str, str, str, str]
"""What the store should have (a digest, or a file's name), and in words: whose it is, what its absence means, and what mends that."""


def _of_models(session: Session) -> list[Named]:
    found: list[Named] = []
    for row in session.scalars(select(ModelVersionRow).where(ModelVersionRow.stage != "archived")):
        means = f"{row.model}@{row.version} ({row.stage}) cannot be loaded, served or judged"
        for what, digest in (("checkpoint", row.checkpoint), ("report", row.report)):
            if digest:
                mend = f"halving rerun {row.run} trains it again; or {_BACKUP}" if what == "checkpoint" and row.run else _BACKUP
                found.append((digest, f"the {what} of {row.model}@{row.version}", means, mend))
    for sweep, digest in session.execute(select(ReportRow.sweep, ReportRow.digest)):
        found.append((digest, f"the report of {sweep}", f"its page and `halving leaderboard {sweep}` lack the evaluation", _BACKUP))
    return found


def _of_snapshots(session: Session) -> list[Named]:
    searching = select(SweepRow.snapshot).where(SweepRow.status == "searching")
    rows = session.scalars(select(SnapshotRow).where(SnapshotRow.digest.in_(searching)))
    means, mend = (
        "trials of open sweeps on it cannot start",
        "dvc pull; or launch the sweep's spec again, which takes it from its source",
    )
    return [(f"{snapshot_folder(row.name, row.digest)}/manifest.json", f"the snapshot of {row.name}", means, mend) for row in rows]


def _of_paused_trials(session: Session) -> list[Named]:
    query = select(TrialRow.sweep, TrialRow.number, TrialRow.checkpoint).join(SweepRow, SweepRow.id == TrialRow.sweep)
    waiting = query.where(SweepRow.status == "searching", TrialRow.status == "paused", TrialRow.checkpoint.is_not(None))
    return [
        (digest, f"the checkpoint of {sweep}.{number:04d}", "the trial cannot be resumed when it is promoted, and fails", _BACKUP)
        for sweep, number, digest in session.execute(waiting)
        if digest is not None
    ]


def _published(store: Store, catalog: Catalog, late: list[str]) -> str:
    problems = publish(store, catalog)
    if problems:
        raise RuntimeError("; ".join(problems))
    return f"written: {', '.join(late[:_SHOWN])}"
