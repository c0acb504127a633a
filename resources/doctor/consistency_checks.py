"""Checks that the catalog and the store agree."""

import json
import random
from collections.abc import Collection, Iterator
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving import NotFound, Store
from halving.data.shards import shards_of
from halving.data.snapshot import snapshot_folder
from halving.doctor.checks import ERROR, OK, WARNING, Finding
from halving.errors import Damaged
from halving.query.runs import in_threads, list_names, read_run
from resources.analysis.named_contents import (
    FROM_A_BACKUP,
    contents_of_models,
    contents_of_paused_trials,
    find_missing,
)
from resources.analysis.run_index import Refresher
from resources.catalog import Catalog, ModelVersionRow, RunRow, SnapshotRow, SweepRow
from resources.datasets.registration import adopt, find_unregistered
from resources.datasets.snapshot_catalog import snapshot_key
from resources.registry.publishing import behind, publish
from resources.scheduling.sweeps import OPEN

_SAMPLE = 200
_MAX_FINDINGS = 5
_TAKE_AGAIN = "dvc pull; or launch the sweep's spec again, which takes it from its source"
_READABLE = "readable"
_NO_RUN = "its folder has no record: it was killed while it began"


def check_files(store: Store, catalog: Catalog, *, whole: bool = False) -> Iterator[Finding]:
    """Check that the store has what the catalog names.

    These are the contents of models and reports with the parts of sharded checkpoints, the snapshots in use
    with their shards, and the checkpoints of a sample of the paused trials, or of all (``whole``).
    """
    with catalog.read() as session:
        contents = contents_of_models(session)
        paused = contents_of_paused_trials(session)
        snapshots = _snapshots_in_use(session)
    if not whole:
        paused = random.sample(paused, min(_SAMPLE, len(paused)))
    contents += paused
    gone = [
        Finding(ERROR, f"{content.title} is not in the store: {content.digest}", content.means, content.mend)
        for content in find_missing(store, contents, store.exists)
    ]
    gone += _missing_of_snapshots(store, snapshots)
    yield from gone[:_MAX_FINDINGS]
    if len(gone) > _MAX_FINDINGS:
        more = f"{len(gone) - _MAX_FINDINGS} more that the catalog names are not in the store"
        yield Finding(ERROR, more, gone[_MAX_FINDINGS].means, gone[_MAX_FINDINGS].mend)
    if not gone:
        count = len({content.digest for content in contents}) + len(snapshots)
        contents_of_catalog = f"{count} checkpoints, reports and snapshots of the catalog"
        yield Finding(OK, f"the store has the {contents_of_catalog} that were looked for")


def check_snapshots(store: Store, catalog: Catalog) -> Iterator[Finding]:
    """Check that the catalog knows each snapshot that the store has."""
    datasets = {name: find_unregistered(store, catalog, name) for name in store.names("datasets")}
    lacking = {
        name: len(of_dataset.manifests) for name, of_dataset in datasets.items() if of_dataset.manifests
    }
    faults = [
        f"{file}: {fault}" for of_dataset in datasets.values() for file, fault in of_dataset.faults.items()
    ]
    for fault in faults[:_MAX_FINDINGS]:
        means = "no list has its snapshot, which may have been in use; its shards stay where they are"
        yield Finding(
            WARNING,
            f"the manifest of a snapshot cannot be read: {fault}",
            means,
            f"dvc pull; or {FROM_A_BACKUP}",
        )
    if len(faults) > _MAX_FINDINGS:
        yield Finding(
            WARNING,
            f"{len(faults) - _MAX_FINDINGS} more manifests cannot be read",
            "no list has their snapshots",
            FROM_A_BACKUP,
        )
    if lacking:
        counts = ", ".join([f"{count} of {name}" for name, count in lacking.items()][:_MAX_FINDINGS])
        yield Finding(
            WARNING,
            f"the store has {sum(lacking.values())} snapshots that the catalog lacks: {counts}",
            (
                "a process was killed before it had them registered, or the catalog is older than the store: "
                "no list has them"
            ),
            "the dataset's next snapshot registers them",
            partial(_register, store, catalog, list(lacking)),
        )
    elif not faults:
        yield Finding(OK, "the catalog knows the store's snapshots")


def check_published(store: Store, catalog: Catalog) -> Iterator[Finding]:
    """Check that the published models in the store are those of the catalog."""
    with catalog.read() as session:
        late = behind(session)
    if not late:
        yield Finding(OK, "what the store says of models is what the catalog says")
        return
    yield Finding(
        WARNING,
        f"the store does not say yet what the catalog says of {', '.join(late[:_MAX_FINDINGS])}",
        "halving.resolve(…) finds the champion before",
        "any command of the registry, or a server, writes it",
        partial(_publish, store, catalog, late),
    )


def check_index(store: Store, catalog: Catalog) -> Iterator[Finding]:
    """Check that the index has the store's runs, and say why it cannot have those that it lacks."""
    stored = set(list_names(store))
    with catalog.read() as session:
        indexed = {(project, run) for project, run in session.execute(select(RunRow.project, RunRow.run))}
    lacking = sorted(stored - indexed)[:_SAMPLE]
    states = dict(zip(lacking, in_threads(lambda pair: _state_of(store, *pair), lacking), strict=True))
    damaged = [state for state in states.values() if isinstance(state, Damaged)]
    for error in damaged[:_MAX_FINDINGS]:
        means = (
            "its run is in no list, nothing of it goes by retention, and blobs that nothing names stay "
            "because of it"
        )
        yield Finding(
            ERROR, str(error), means, f"{FROM_A_BACKUP}; or delete it, with what else is in its run's folder"
        )
    if len(damaged) > _MAX_FINDINGS:
        yield Finding(
            ERROR,
            f"the records of {len(damaged) - _MAX_FINDINGS} more runs are damaged",
            "these are in no list",
            FROM_A_BACKUP,
        )
    expected = {pair for pair in stored - indexed if states.get(pair, _READABLE) == _READABLE}
    gone = indexed - stored
    if not expected and not gone:
        if not damaged:
            yield Finding(OK, f"the index has the {len(indexed)} runs of the store")
        return
    differences = []
    if expected:
        differences.append(f"lacks {len(expected)} runs of the store ({_names(expected)})")
    if gone:
        differences.append(f"has {len(gone)} that the store has not ({_names(gone)})")
    yield Finding(
        WARNING,
        f"the index {' and '.join(differences)}",
        (
            "the page's tables and filters lack some, or show deleted ones; a server brings it up to date by "
            "itself"
        ),
        "halving index",
        lambda: f"the index has {Refresher(store, catalog).refresh().runs} runs now",
    )


def _state_of(store: Store, project: str, run: str) -> Damaged | str:
    """Whether a run that the index lacks can be read: the damage, or a sentence."""
    try:
        read_run(store, project, run)
    except NotFound:
        return _NO_RUN
    except Damaged as error:
        return error
    return _READABLE


def _names(runs: Collection[tuple[str, str]]) -> str:
    names = [f"{project}/{run}" for project, run in sorted(runs)[:_MAX_FINDINGS]]
    if len(runs) > _MAX_FINDINGS:
        names.append("…")
    return ", ".join(names)


def _snapshots_in_use(session: Session) -> list[tuple[str, str]]:
    """Names and digests of the snapshots of open sweeps, and of versions that are not archived."""
    sweeps = select(SweepRow.snapshot).where(SweepRow.status.in_(OPEN))
    versions = select(ModelVersionRow.snapshot).where(
        ModelVersionRow.stage != "archived", ModelVersionRow.snapshot.is_not(None)
    )
    rows = session.scalars(
        select(SnapshotRow).where(SnapshotRow.digest.in_(sweeps) | SnapshotRow.digest.in_(versions))
    )
    return [(row.name, row.digest) for row in rows]


def _missing_of_snapshots(store: Store, snapshots: list[tuple[str, str]]) -> Iterator[Finding]:
    """Find manifests and shards of snapshots that the store lacks, or whose size is wrong."""
    if not snapshots:
        return
    means = (
        "trials of open sweeps on it cannot start, and versions that were trained on it cannot be judged "
        "or trained again"
    )
    # One listing serves all snapshots.
    sizes = {name: size for name, size, _ in store.files("shards/sha256")}
    for name, digest in snapshots:
        file = f"{snapshot_folder(name, digest)}/manifest.json"
        try:
            manifest = json.loads(store.read(file))
            shards = [shard for split in manifest["shards"] for shard in shards_of(manifest, split)]
        except NotFound:
            yield Finding(ERROR, f"the snapshot of {name} is not in the store: {file}", means, _TAKE_AGAIN)
            continue
        except (ValueError, LookupError, TypeError) as error:
            yield Finding(
                ERROR, f"the snapshot of {name} cannot be read: {file}: {error!r}", means, _TAKE_AGAIN
            )
            continue
        fetch = (
            f"halving datasets fetch {snapshot_key(name, digest)} --from STORE, if another store has it; "
            f"or {FROM_A_BACKUP}"
        )
        for shard in shards:
            if shard.name not in sizes:
                yield Finding(
                    ERROR,
                    f"a shard of the snapshot of {name} is not in the store: {shard.name}",
                    means,
                    fetch,
                )
            elif sizes[shard.name] != shard.bytes:
                what = (
                    f"a shard of the snapshot of {name} has {sizes[shard.name]} bytes, not {shard.bytes}: "
                    f"{shard.name}"
                )
                yield Finding(ERROR, what, means, fetch)


def _register(store: Store, catalog: Catalog, names: list[str]) -> str:
    keys = [snapshot.key for name in names for snapshot in adopt(store, catalog, name)]
    if len(keys) > _MAX_FINDINGS:
        keys = [*keys[:_MAX_FINDINGS], "…"]
    return f"registered: {', '.join(keys)}"


def _publish(store: Store, catalog: Catalog, late: list[str]) -> str:
    problems = publish(store, catalog)
    if problems:
        raise RuntimeError("; ".join(problems))
    return f"written: {', '.join(late[:_MAX_FINDINGS])}"
