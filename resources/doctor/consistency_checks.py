"""Checks of what the catalog and the store say of each other."""

import json
import random
from collections.abc import Iterator
from functools import partial

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from halving import NotFound, Store
from halving.data.dataset import snapshot_folder
from halving.data.shards import shards_of
from halving.doctor.checks import ERROR, OK, WARNING, Finding
from halving.query.runs import list_names
from resources.analysis.named_contents import FROM_A_BACKUP, contents_of_models, contents_of_paused_trials, find_missing
from resources.analysis.run_index import Refresher
from resources.catalog import Catalog, ModelVersionRow, RunRow, SnapshotRow, SweepRow
from resources.datasets.known_snapshots import snapshot_key
from resources.registry.publishing import behind, publish
from resources.scheduling.sweeps import OPEN

_SAMPLE = 200
_SHOWN = 5
_TAKE_AGAIN = "dvc pull; or launch the sweep's spec again, which takes it from its source"


def check_files(store: Store, catalog: Catalog, *, whole: bool = False) -> Iterator[Finding]:
    """That the store has what the catalog names: all of models and reports, the snapshots in use with their shards, with the parts of
    sharded checkpoints; of paused trials a sample, or all.
    """
    with catalog.read() as session:
        contents = contents_of_models(session)
        paused = contents_of_paused_trials(session)
        snapshots = _snapshots_in_use(session)
    contents += paused if whole else random.sample(paused, min(_SAMPLE, len(paused)))
    gone = [
        Finding(ERROR, f"{content.what} is not in the store: {content.digest}", content.means, content.mend)
        for content in find_missing(store, contents, store.exists)
    ]
    gone += _missing_of_snapshots(store, snapshots)
    yield from gone[:_SHOWN]
    if len(gone) > _SHOWN:
        more = f"{len(gone) - _SHOWN} more that the catalog names are not in the store"
        yield Finding(ERROR, more, gone[_SHOWN].means, gone[_SHOWN].mend)
    if not gone:
        count = len({content.digest for content in contents}) + len(snapshots)
        yield Finding(OK, f"the store has the {count} checkpoints, reports and snapshots of the catalog that were looked for")


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


def _snapshots_in_use(session: Session) -> list[tuple[str, str]]:
    """Names and digests of the snapshots of open sweeps, and of versions that are not archived."""
    sweeps = select(SweepRow.snapshot).where(SweepRow.status.in_(OPEN))
    versions = select(ModelVersionRow.snapshot).where(ModelVersionRow.stage != "archived", ModelVersionRow.snapshot.is_not(None))
    rows = session.scalars(select(SnapshotRow).where(SnapshotRow.digest.in_(sweeps) | SnapshotRow.digest.in_(versions)))
    return [(row.name, row.digest) for row in rows]


def _missing_of_snapshots(store: Store, snapshots: list[tuple[str, str]]) -> Iterator[Finding]:
    """What the store lacks of snapshots: their manifests, or shards of the size that these say. It is listed once for all."""
    if not snapshots:
        return
    means = "trials of open sweeps on it cannot start, and versions that were trained on it cannot be judged or trained again"
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
            yield Finding(ERROR, f"the snapshot of {name} cannot be read: {file}: {error!r}", means, _TAKE_AGAIN)
            continue
        fetch = f"halving datasets fetch {snapshot_key(name, digest)} --from STORE, if another store has it; or {FROM_A_BACKUP}"
        for shard in shards:
            if shard.name not in sizes:
                yield Finding(ERROR, f"a shard of the snapshot of {name} is not in the store: {shard.name}", means, fetch)
            elif sizes[shard.name] != shard.bytes:
                what = f"a shard of the snapshot of {name} has {sizes[shard.name]} bytes, not {shard.bytes}: {shard.name}"
                yield Finding(ERROR, what, means, fetch)


def _published(store: Store, catalog: Catalog, late: list[str]) -> str:
    problems = publish(store, catalog)
    if problems:
        raise RuntimeError("; ".join(problems))
    return f"written: {', '.join(late[:_SHOWN])}"
