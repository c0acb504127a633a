"""Which files hold a run's points: those that its newest manifest names, and newer segments.

A compaction publishes ``manifest-GGGGGG.json`` last, in one step. So a reader finds either the segments or
the file that they were compacted into, wherever a compaction was killed. The other files of a generation have
a random token in their names, so compactions at the same time never touch each other's files, and only one of
them publishes the generation's manifest.
"""

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from halving.errors import Damaged, NotFound, StoreError
from halving.metrics.segments import batch_of, drained_of, live_folder, parse_segment_name
from halving.store.json_files import to_json
from halving.store.store import Store

FAMILIES = ("other", "system")
_MANIFEST = re.compile(r"manifest-(\d{6,})\.json")
_DATA = re.compile(r"(?:full|rollup)-(\d{6,})(?:-[0-9a-f]+)?\.parquet")
# A client sends one batch after the other, and repeats those that were not acknowledged.
_BATCHES_KNOWN = 64
_DIGEST_CHARACTERS = 16
_LISTINGS = 10  # tries at reading a manifest while compactions replace it


@dataclass(frozen=True)
class Absorbed:
    """The part of one attempt that a manifest covers.

    Attributes:
        segments: how many segments it covers, from the first one on.
        drained: how far the journal was drained with them.
        batches: for the last ones, the segment's number to the beginning of the digest of the batch from
            which a server made it.
    """

    segments: int
    drained: dict[str, list[int]] = field(default_factory=dict)
    batches: dict[str, str] = field(default_factory=dict)

    def and_segment(self, sequence: int, metadata: Mapping[bytes, bytes] | None) -> "Absorbed":
        """Return the part with one more segment, given by its number and its file's metadata."""
        batches = dict(self.batches)
        digest = batch_of(metadata)
        if digest:
            batches[str(sequence)] = digest[:_DIGEST_CHARACTERS]
        last = sorted(batches, key=int)[-_BATCHES_KNOWN:]
        return Absorbed(sequence + 1, drained_of(metadata), {number: batches[number] for number in last})


@dataclass(frozen=True)
class Manifest:
    """The compacted state of a run; ``Manifest()`` is that of a run without any compaction.

    File names are relative to the project's folder.

    Attributes:
        generation: counts manifests of the run, from 1; 0 where nothing is compacted.
        full: the file with all absorbed points, or None after retention dropped it.
        rollup: the file with their buckets, or None after retention dropped it.
        absorbed: attempt to the part of it that is absorbed.
        points: how many points were ever absorbed.
        written: when the manifest was written, ISO 8601.
        active: when points were absorbed last, ISO 8601; the age of a run's points is counted from here. None
            means ``written``.
        held: how many points ``full`` holds, by family of keys: ``system`` (``system/…``) and ``other``.
        history: family to the rollup file that covers the points that retention dropped from ``full``. Empty
            while ``full`` has all points. ``rollup`` always covers everything.
    """

    generation: int = 0
    full: str | None = None
    rollup: str | None = None
    absorbed: dict[int, Absorbed] = field(default_factory=dict)
    points: int = 0
    written: str = ""
    active: str | None = None
    held: dict[str, int] = field(default_factory=dict)
    history: dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        """The data files that this state needs, relative to the project's folder."""
        return {name for name in (self.full, self.rollup, *self.history.values()) if name}

    def has_all_points(self, key: str) -> bool:
        """Whether no point of a key was dropped by retention."""
        return family_of(key) not in self.history and (self.full is not None or not self.rollup)


@dataclass(frozen=True)
class RunFiles:
    """A run's metric files: the manifest, and the live segments.

    Attributes:
        segments: those that the manifest has not absorbed, sorted by their full names in the store: to
            ``(attempt, sequence)``.
        stale: absorbed segments that are not deleted yet, by their full names.
    """

    manifest: Manifest
    segments: dict[str, tuple[int, int]]
    stale: tuple[str, ...]


def project_folder(project: str) -> str:
    """The folder of a project's metric files in the store."""
    return f"metrics/project={project}"


def run_folder(project: str, run: str) -> str:
    """The folder of a run's metric files in the store."""
    return f"metrics/project={project}/run={run}"


def family_of(key: str) -> str:
    """The family of a key; retention keeps families for different times."""
    if key.startswith("system/"):
        return "system"
    return "other"


def new_name(run: str, kind: str, generation: int) -> str:
    """A name that no other file of a generation has; ``kind`` is ``full`` or ``rollup``.

    It is relative to the project's folder.
    """
    return f"run={run}/{kind}-{generation:06d}-{secrets.token_hex(4)}.parquet"


def read_manifest(store: Store, project: str, run: str) -> Manifest:
    """The newest manifest of a run; ``Manifest()`` if nothing of it is compacted.

    Raises:
        StoreError: an earlier version merged the run's points with those of other runs.
    """
    for _ in range(_LISTINGS - 1):
        try:
            return _newest(store, project, run)
        except NotFound:  # a newer one was published and this one deleted, since the folder was listed
            continue
    return _newest(store, project, run)


def newest_generation(store: Store, project: str, run: str) -> int:
    """The generation of a run's newest manifest, for one listing; 0 where nothing is compacted."""
    return max(_generations(store.names(run_folder(project, run))), default=0)


def publish_manifest(store: Store, project: str, run: str, manifest: Manifest) -> None:
    """Commit a compaction by publishing its manifest.

    Raises:
        AlreadyExists: another compaction has published this generation.
    """
    value = asdict(manifest)
    value["absorbed"] = {f"{attempt:04d}": asdict(part) for attempt, part in manifest.absorbed.items()}
    store.create(_manifest_name(project, run, manifest.generation), to_json(value))


def run_files(store: Store, project: str, run: str) -> RunFiles:
    """The files to read for a run.

    It is safe beside a compaction, because segments are listed first and the manifest after them. A segment
    that is missing when it is opened was absorbed since: list again.
    """
    live = live_folder(project, run)
    segments = {
        f"{live}/{name}": parsed for name in store.names(live) if (parsed := parse_segment_name(name))
    }
    manifest = read_manifest(store, project, run)
    ends = {attempt: part.segments for attempt, part in manifest.absorbed.items()}
    stale = tuple(name for name, (attempt, sequence) in segments.items() if sequence < ends.get(attempt, 0))
    for name in stale:
        del segments[name]
    return RunFiles(manifest, segments, stale)


def find_superseded(store: Store, project: str, run: str, manifest: Manifest) -> list[str]:
    """The full names of files in the run's folder that are not needed any more.

    Data files of a generation that is not published yet stay: they may belong to a compaction that is
    running. As soon as a compaction has published that generation, a data file that its manifest does not
    name will never be used.
    """
    folder = run_folder(project, run)
    names = store.names(run_folder(project, run))
    old = [
        f"manifest-{generation:06d}.json"
        for generation in sorted(_generations(names))
        if generation < manifest.generation
    ]
    for name in names:
        match = _DATA.fullmatch(name)
        if match and int(match[1]) <= manifest.generation and f"run={run}/{name}" not in manifest.files:
            old.append(name)
    return [f"{folder}/{name}" for name in old]


def projects_of(store: Store) -> list[str]:
    """The projects that have metric files."""
    return [name.removeprefix("project=") for name in store.names("metrics") if name.startswith("project=")]


def runs_of(store: Store, project: str) -> list[str]:
    """The runs of a project that have metric files."""
    return [
        name.removeprefix("run=") for name in store.names(project_folder(project)) if name.startswith("run=")
    ]


def _newest(store: Store, project: str, run: str) -> Manifest:
    generations = _generations(store.names(run_folder(project, run)))
    if not generations:
        return Manifest()
    name = _manifest_name(project, run, max(generations))
    try:
        value: dict[str, Any] = json.loads(store.read(name))
        value["absorbed"] = {int(attempt): Absorbed(**part) for attempt, part in value["absorbed"].items()}
        manifest = Manifest(**value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{store.address(name)} is damaged: {error}") from None
    if shared := [name for name in manifest.files if not name.startswith(f"run={run}/")]:
        raise StoreError(
            f"run {run!r} of project {project!r} has points in {shared[0]}, a file that an earlier version "
            "merged from several runs; "
            "this version cannot tell them apart, so read the run with the one that merged them"
        )
    return manifest


def _generations(names: list[str]) -> list[int]:
    return [int(match[1]) for name in names if (match := _MANIFEST.fullmatch(name))]


def _manifest_name(project: str, run: str, generation: int) -> str:
    return f"{run_folder(project, run)}/manifest-{generation:06d}.json"
