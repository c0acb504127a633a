"""The bytes of a project's points, checkpoints and artifacts and their price, from a sample of its runs.

A store may have millions of blobs, so they are not all listed. If a project has more runs than
:data:`SAMPLED`, only so many are measured, spread evenly over their names, and the sums are scaled up. A blob
that a run names several times is counted once, and one that retention has deleted is not counted. A blob that
runs share is counted for each run of the sample that names it.
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
"""The number of runs that are measured, each by a few listings and requests."""


@dataclass(frozen=True)
class Stored:
    """Bytes that a project has in the store.

    Attributes:
        sampled: the number of runs that were measured; if it is below ``runs``, all sums are estimates.
        month: the price of the bytes for a month.
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
    """Measure the bytes that a project has in the store, by a sample of its runs.

    Raises:
        StoreError: the store cannot be read.
    """
    runs = _runs(store, project)
    sample = runs
    if len(runs) > SAMPLED:
        sample = [runs[place * len(runs) // SAMPLED] for place in range(SAMPLED)]
    sizes = [_bytes_of(store, project, run) for run in sample]
    times = len(runs) / max(1, len(sample))
    points, checkpoints, artifacts = (
        round(times * sum(of_run[kind] for of_run in sizes)) for kind in range(3)
    )
    month = (points + checkpoints + artifacts) / 1e9 * prices.gb_month.price
    return Stored(project, len(runs), len(sample), points, checkpoints, artifacts, month)


def _runs(store: Store, project: str) -> list[str]:
    return [name for name in store.names(f"runs/project={project}") if not name.endswith(".json")]


def _bytes_of(store: Store, project: str, run: str) -> tuple[int, int, int]:
    """The bytes of a run's points, of its checkpoints and of its artifacts."""
    records = RunRecords(store, project, run)
    points = sum(size for _, size, _ in store.files(run_folder(project, run)))
    saved = {checkpoint.digest: checkpoint.sharded for checkpoint in records.checkpoints()}
    parts = {place for digest, sharded in saved.items() if sharded for place in _parts(store, digest)}
    logged = {
        digest for kind in ("artifacts", "media") for digest in _digests(store, f"{records.folder}/{kind}")
    } - saved.keys()
    # A record stays when retention has deleted the blob that it names, so the store has to say what is there.
    sizes = store.sizes([blob_name(digest) for digest in (*saved, *logged)])
    checkpoints = sum(sizes.get(blob_name(digest), 0) for digest in saved) + sum(
        place.size for place in parts
    )
    return points, checkpoints, sum(sizes.get(blob_name(digest), 0) for digest in logged)


def _digests(store: Store, folder: str) -> Iterator[str]:
    """The digests that the records in a folder name; the same may come more than once."""
    for name in store.names(folder):
        yield json.loads(store.read(f"{folder}/{name}"))["digest"]


def _parts(store: Store, digest: str) -> Iterator[Place]:
    """The places that the manifest of a sharded checkpoint names; none if the manifest is gone."""
    try:
        manifest = Manifest.parse(store.get_blob(digest))
    except NotFound:
        return
    yield from (chunk.place for tensor in manifest.tensors.values() for chunk in tensor.chunks)
    yield from manifest.rng
