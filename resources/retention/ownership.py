"""That a catalog is a store's own: it has every sweep, and every version of a model, that the store has
something of.

With another one, or with one that was just made, nobody would know that a sweep is open or that a version is
of a run: what only the right catalog names would be deleted.
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
from resources.catalog import Catalog, ModelVersionRow, RegistryEventRow, SweepRow, masked

LOST = "retention/lost-sweeps.txt"
"""In the store: the ids of sweeps that no catalog has any more, one a line; what is of them is kept as what
people began one by one.
"""

_TRIAL = re.compile(r"(.+)\.\d{4,}")
_VERSION = re.compile(r"models/.+/\d+\.\d+\.\d+\.json")
_SHOWN = 3


def check_is_own(store: Store, catalog: Catalog, called: str | None = None) -> None:
    """Refuse a catalog that lacks sweeps of which the store has runs or reports, or versions that the store
    says of its models.

    Of runs only those are opened that are named as trials of a sweep that the catalog lacks, one of each such
    sweep.

    Args:
        called: what the message calls it (default: its URL).

    Raises:
        InvalidInput: it lacks some.
        StoreError: the store cannot be read.
    """
    # The store is looked at first: what begins meanwhile is in the catalog before it is in the store.
    reported = {name.removesuffix(".html") for name in store.names("reports")}
    trials = _trials(store)
    published = {name for name, _, _ in store.files("models") if _VERSION.fullmatch(name)}
    with catalog.read() as session:
        sweeps = set(session.scalars(select(SweepRow.id))) | _lost(store)
        versions = _versions(session) if published else set()
    searched = {sweep for sweep in trials.keys() - sweeps if _is_of_sweep(store, sweep, trials[sweep])}
    problems = []
    if unknown := sorted(reported - sweeps):
        problems.append(f"no sweep {_some(unknown)}, of which the store {store.root} has a report")
    if unknown := sorted(searched - reported):
        problems.append(f"no sweep {_some(unknown)}, of which the store {store.root} has runs")
    mend = (
        f"If these sweeps are gone for good, name them, one a line, in {store.address(LOST)}"
        if problems
        else ""
    )
    if unknown := sorted(published - versions):
        problems.append(f"no version of a model for {_some(unknown)} of the store {store.root}")
        mend += f"{'; i' if mend else 'I'}f such a version is gone for good, delete its file"
    if problems:
        name = called or f"the catalog {masked(catalog.url)}"
        raise InvalidInput(
            f"{name} is not accepted: it has {'; it has '.join(problems)}; what these need would be "
            "deleted. Set HALVING_CATALOG "
            f"to the store's catalog. {mend}"
        )


def _trials(store: Store) -> Mapping[str, list[tuple[str, str]]]:
    """``(project, run)`` of the runs that are named as trials are, by what would be their sweep."""
    trials: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for project, run in list_names(store):
        if name := _TRIAL.fullmatch(run):
            trials[name[1]].append((project, run))
    return trials


def _is_of_sweep(store: Store, sweep: str, runs: Iterable[tuple[str, str]]) -> bool:
    """Whether runs that are named like a sweep's trials are that: the first that has a record says it."""
    # also in a record that is damaged
    said = re.compile(rb'"sweep":\s*"' + re.escape(sweep.encode()) + rb'"')
    for project, run in sorted(runs):
        try:
            record = store.read(f"runs/project={project}/{run}/record.json")
        except NotFound:
            continue
        if record.strip(b"\0 \n"):
            return bool(said.search(record))
    return False


def _versions(session: Session) -> set[str]:
    """The names of the files of all versions that the catalog has or had; those that it had may not be
    deleted yet.
    """
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
    more = f" (and {len(names) - _SHOWN} more)" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
