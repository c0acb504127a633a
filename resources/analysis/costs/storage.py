"""What storage costs: the bytes of a project's points, checkpoints and artifacts, from a sample of its runs.

A store may have millions of blobs, so they are not walked through: of a project with more than
:data:`SAMPLED` runs so many are looked at, spread evenly over their names, and the sums are multiplied. What
a run names several times is counted once, and what retention has deleted is not; what runs share is counted
once for each run of the sample that names it.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from halving import Store
from halving.checkpoints.sharded.manifest import Manifest, Place
from halving.errors import NotFound
from halving.metrics.manifest import run_folder
from halving.records.run_record import RunRecords
from halving.store.store import blob_name
from resources.analysis.costs.prices import Prices

SAMPLED = 24
"""Runs that are looked at, each by a few listings and requests."""


@dataclass(frozen=True)
class Stored:
    """Bytes of a project.

    Attributes:
        sampled: runs that were looked at; where that is fewer than ``runs``, all else is an estimate.
        month: what they cost a month.
    """

    project: str
    runs: int
    sampled: int
    points: int
    checkpoints: int
    artifacts: int
    month: float

    @property
    def bytes(self) -> int:
        return self.points + self.checkpoints + self.artifacts

    @property
    def estimated(self) -> bool:
        return self.sampled < self.runs

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bytes": self.bytes, "estimated": self.estimated}


def stored_of(store: Store, project: str, prices: Prices) -> Stored:
    """What a project has in the store, by a sample of its runs.

    Raises:
        StoreError: the store cannot be read.
    """
    runs = _runs(store, project)
    sample = [runs[place * len(runs) // SAMPLED] for place in range(SAMPLED)] if len(runs) > SAMPLED else runs
    found = [_bytes_of(store, project, run) for run in sample]
    times = len(runs) / max(1, len(sample))
    points, checkpoints, artifacts = (round(times * sum(one[kind] for one in found)) for kind in range(3))
    month = (points + checkpoints + artifacts) / 1e9 * prices.gb_month.price
    return Stored(project, len(runs), len(sample), points, checkpoints, artifacts, month)


def _runs(store: Store, project: str) -> list[str]:
    return [name for name in store.names(f"runs/project={project}") if not name.endswith(".json")]


def _bytes_of(store: Store, project: str, run: str) -> tuple[int, int, int]:
    """Of points, checkpoints and artifacts."""
    records = RunRecords(store, project, run)
    points = sum(size for _, size, _ in store.files(run_folder(project, run)))
    saved = {one.digest: one.sharded for one in records.checkpoints()}
    parts = {place for digest, sharded in saved.items() if sharded for place in _parts(store, digest)}
    logged = {
        digest for kind in ("artifacts", "media") for digest in _digests(store, f"{records.folder}/{kind}")
    } - saved.keys()
    # A record stays when retention has deleted what it names, so it is the store that says what there is.
    sizes = store.sizes([blob_name(digest) for digest in (*saved, *logged)])
    checkpoints = sum(sizes.get(blob_name(digest), 0) for digest in saved) + sum(
        place.size for place in parts
    )
    return points, checkpoints, sum(sizes.get(blob_name(digest), 0) for digest in logged)


def _digests(store: Store, folder: str) -> Iterator[str]:
    """What the records in a folder name, which may be the same more than once."""
    for name in store.names(folder):
        yield json.loads(store.read(f"{folder}/{name}"))["digest"]


def _parts(store: Store, digest: str) -> Iterator[Place]:
    """What the manifest of a sharded checkpoint names; nothing where that is gone."""
    try:
        manifest = Manifest.parse(store.get_blob(digest))
    except NotFound:
        return
    yield from (chunk.place for tensor in manifest.tensors.values() for chunk in tensor.chunks)
    yield from manifest.rng
