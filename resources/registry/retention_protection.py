"""Retention, and what it must not touch: runs that led to champions, staging versions and reports, and blobs that the catalog names."""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving import Store
from halving.errors import InvalidInput
from halving.maintenance.retention import Retained, apply_retention
from resources.catalog import Catalog, IntentRow, ModelVersionRow, ReportRow, RungResultRow, SweepRow, TrialRow, masked
from resources.catalog.trial_key import trial_key
from resources.scheduling.intents import OPEN as UNSETTLED
from resources.scheduling.sweeps import OPEN


@dataclass(frozen=True)
class Protected:
    """What stays as it is.

    Attributes:
        runs: ``(project, run)``, with all their points and checkpoints.
        blobs: digests of checkpoints and reports; they stay although their runs are not protected.
    """

    runs: frozenset[tuple[str, str]]
    blobs: frozenset[str]


def retain(store: Store, catalog: Catalog, **limits: Any) -> tuple[Retained, Protected]:
    """Drop what is too old and not protected. Gives what was dropped, and what was protected.

    Args:
        store: whose points and checkpoints are dropped.
        catalog: says what is protected.
        limits: how old, of which project, and whether only to list it: the options of :func:`apply_retention`.

    Raises:
        InvalidInput: the limits are not accepted, or the store has reports of another catalog's sweeps.
        NotFound: a report's content is gone from the store.
    """
    kept = protected(store, catalog)
    return apply_retention(store, protected=kept.runs, keep_blobs=kept.blobs, **limits), kept


def protected(store: Store, catalog: Catalog) -> Protected:
    """What the registry, the reports and unfinished sweeps reach.

    Runs: of champions and staging versions, of every report's winner, and all of sweeps that are not finished. Blobs: every report, the
    checkpoint of every version, because an archived one may be made champion again, and of every trial the one of its highest rung.

    Raises:
        InvalidInput: the store has reports of another catalog's sweeps, so what these reach is unknown.
        NotFound: a report's content is gone from the store.
    """
    reported = {name.removesuffix(".html") for name in store.names("reports")}
    with catalog.read() as session:
        if unknown := sorted(reported - set(session.scalars(select(SweepRow.id)))):
            raise InvalidInput(
                f"the catalog {masked(catalog.url)} is not accepted: it has no sweep {unknown[0]}, of which the store {store.root} has a "
                f"report{f', nor {len(unknown) - 1} more' if len(unknown) > 1 else ''}; what these sweeps need would be deleted. Set "
                "HALVING_CATALOG to the store's catalog. If they are gone for good, delete their pages in the store's folder reports"
            )
        return Protected(frozenset(_runs(session, store)), frozenset(_checkpoints(session) | _reports(session)))


def _runs(session: Session, store: Store) -> set[tuple[str, str]]:
    """``(project, run)`` of runs that a champion, a staging version, a report or an unfinished sweep reaches.

    Raises:
        NotFound: a report's content is gone from the store, so what it reaches is unknown.
    """
    versions = session.scalars(select(ModelVersionRow).where(ModelVersionRow.stage != "archived"))
    found = {(row.project, row.run) for row in versions if row.project and row.run}
    for report in session.scalars(select(ReportRow)):
        data = json.loads(store.get_blob(report.digest))
        found.add((data["name"], data["winner"]["key"]))
    unfinished = select(SweepRow.name, TrialRow.sweep, TrialRow.number).join(TrialRow, TrialRow.sweep == SweepRow.id)
    for name, sweep, number in session.execute(unfinished.where(SweepRow.status.in_(OPEN))):
        found.add((name, trial_key(sweep, number)))
    # What training runs are to go on from: they may not have begun, and a retry goes back to it.
    specs = [*session.scalars(select(SweepRow.spec).where(SweepRow.status.in_(OPEN)))]
    specs += [payload["spec"] for payload in session.scalars(select(IntentRow.payload).where(IntentRow.status.in_(UNSETTLED)))]
    found.update((source["project"], source["run"]) for spec in specs if (source := spec.get("restored_from")))
    return found


def _checkpoints(session: Session) -> set[str]:
    kept = {digest for digest in session.scalars(select(ModelVersionRow.checkpoint)) if digest}
    kept.update(digest for digest in session.scalars(select(TrialRow.checkpoint)) if digest)
    highest: dict[tuple[str, int], RungResultRow] = {}
    ordered = select(RungResultRow).where(RungResultRow.checkpoint.is_not(None)).order_by(RungResultRow.rung)
    for result in session.scalars(ordered):
        highest[result.sweep, result.trial] = result
    for result in highest.values():
        kept.update(digest for digest in (result.checkpoint, result.best_checkpoint) if digest)
    return kept


def _reports(session: Session) -> set[str]:
    named = session.execute(select(ReportRow.digest, ReportRow.html)).all()
    of_versions = {digest for digest in session.scalars(select(ModelVersionRow.report)) if digest}
    return {*of_versions, *(digest for row in named for digest in row)}
