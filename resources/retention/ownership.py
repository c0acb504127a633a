"""The check that a catalog belongs to a store: it has every sweep and version that the store has files of.

Another store's catalog, or a new one, does not say which sweeps are open and which runs versions were made
of. With it, blobs would be deleted that only the right catalog names.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.models.published import published_name
from halving.query.runs import list_names
from halving.store.store import Store
from resources.catalog import Catalog, ModelVersionRow, RegistryEventRow, SweepRow, mask_password

LOST = "retention/lost-sweeps.txt"
"""In the store: ids of sweeps that no catalog has any more, one a line; their runs count as single runs."""

_TRIAL = re.compile(r"(.+)\.\d{4,}")
_VERSION = re.compile(r"models/.+/\d+\.\d+\.\d+\.json")
_MAX_NAMES = 3


def check_is_own(store: Store, catalog: Catalog, called: str | None = None) -> None:
    """Refuse a catalog that lacks sweeps or versions of which the store has files.

    For each sweep that the catalog lacks, one run is opened that is named like a trial of it.

    Args:
        called: the catalog's name in the message (default: its URL).

    Raises:
        InvalidInput: it lacks some.
        StoreError: the store cannot be read.
    """
    # The store is read first: a sweep that begins meanwhile is in the catalog before it is in the store.
    reported = {name.removesuffix(".html") for name in store.names("reports")}
    trials = _trials(store)
    published = {name for name, _, _ in store.files("models") if _VERSION.fullmatch(name)}
    with catalog.read() as session:
        sweeps = set(session.scalars(select(SweepRow.id))) | _lost(store)
        versions = set()
        if published:
            versions = _versions(session)
    searched = {sweep for sweep in trials.keys() - sweeps if _is_of_sweep(store, sweep, trials[sweep])}
    problems = []
    remedies = []
    if unknown := sorted(reported - sweeps):
        problems.append(f"no sweep {_some(unknown)}, of which the store {store.root} has a report")
    if unknown := sorted(searched - reported):
        problems.append(f"no sweep {_some(unknown)}, of which the store {store.root} has runs")
    if problems:
        remedies.append(f"if these sweeps are gone for good, name them, one a line, in {store.address(LOST)}")
    if unknown := sorted(published - versions):
        problems.append(f"no version of a model for {_some(unknown)} of the store {store.root}")
        remedies.append("if such a version is gone for good, delete its file")
    if problems:
        name = called or f"the catalog {mask_password(catalog.url)}"
        remedy = "; ".join(remedies)
        raise InvalidInput(
            f"{name} is not accepted: it has {'; it has '.join(problems)}; what these need would be "
            f"deleted. Set HALVING_CATALOG to the store's catalog. {remedy[0].upper()}{remedy[1:]}"
        )


def _trials(store: Store) -> Mapping[str, list[tuple[str, str]]]:
    """``(project, run)`` of the runs that are named like trials, by the sweep in their names."""
    trials: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for project, run in list_names(store):
        if name := _TRIAL.fullmatch(run):
            trials[name[1]].append((project, run))
    return trials


def _is_of_sweep(store: Store, sweep: str, runs: Iterable[tuple[str, str]]) -> bool:
    """Whether runs that are named like a sweep's trials are its trials, by the first that has a record."""
    # The pattern is found in a damaged record, too.
    pattern = re.compile(rb'"sweep":\s*"' + re.escape(sweep.encode()) + rb'"')
    for project, run in sorted(runs):
        try:
            record = store.read(f"runs/project={project}/{run}/record.json")
        except NotFound:
            continue
        if record.strip(b"\0 \n"):
            return bool(pattern.search(record))
    return False


def _versions(session: Session) -> set[str]:
    """Names of the files of all versions that the catalog has or had; files of the latter may still exist."""
    rows = session.execute(select(ModelVersionRow.model, ModelVersionRow.version)).all()
    events = (
        select(RegistryEventRow.model, RegistryEventRow.version)
        .where(RegistryEventRow.version.is_not(None))
        .distinct()
    )
    return {published_name(model, str(version)) for model, version in [*rows, *session.execute(events)]}


def _lost(store: Store) -> set[str]:
    try:
        return set(store.read(LOST).decode(errors="replace").split())
    except NotFound:
        return set()


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:_MAX_NAMES])
    if len(names) > _MAX_NAMES:
        listed += f" (and {len(names) - _MAX_NAMES} more)"
    return listed
