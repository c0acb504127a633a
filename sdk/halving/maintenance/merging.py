"""Merging: many finished runs in one file sorted by (key, run, step), so that comparing runs reads few row groups.

``metrics/project=P/merged/NAME.parquet`` is written once; it says in its metadata of which runs it was made, at which
generation of each. Then a manifest for each run points there, and the run's own files go. Killed anywhere, the readers of every
run see either its own files or the merged one, and doing it again finishes it.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from halving.errors import AlreadyExists
from halving.identifiers import check_name
from halving.maintenance.compaction import clean, commit, compact, too_fresh
from halving.maintenance.external_sort import Sorter
from halving.maintenance.rewrite import Keep, add_file, add_history, held_by, write_sorted
from halving.metrics.manifest import Manifest, project_folder, read_manifest
from halving.store.filesystem import missing_when_gone
from halving.store.json_files import now
from halving.store.store import Store

_SOURCES = b"halving.merged"


@dataclass(frozen=True)
class Merged:
    """What a merge did.

    Attributes:
        name: the merged file, relative to the project's folder; None when no run had points.
        runs: the runs whose points are in it now.
        left_out: run to why it keeps its own files.
        points: how many points those runs have.
        bytes_before, bytes_after: of the full files, before and after; 0 when all had been done earlier.
    """

    name: str | None
    runs: tuple[str, ...]
    left_out: Mapping[str, str]
    points: int
    bytes_before: int
    bytes_after: int


def merge(store: Store, project: str, runs: Iterable[str], name: str) -> Merged:
    """Merge runs into ``merged/NAME.parquet`` and its rollup, compacting each before.

    A run may still be going on, and one that goes on later loses nothing: its next compaction takes its points out into a file
    of its own. But it pays only for runs that have ended, so choose those. Doing it again with the same name finishes what was
    begun; a merged file never changes, so runs that were not in it, or went on since, are left out and said.

    Raises:
        InvalidInput: a name is not accepted.
        StoreError: the store cannot be written.
    """
    chosen = sorted(set(runs))
    check_name("project", project)
    check_name("name of the merged file", name)
    for run in chosen:
        compact(store, project, run)
    folder, target = project_folder(project), f"merged/{name}.parquet"
    current = {run: manifest for run in chosen if (manifest := read_manifest(store, project, run))}
    before = store.sizes({f"{folder}/{manifest.full}" for manifest in current.values() if manifest.full not in (None, target)})
    if not store.exists(f"{folder}/{target}"):
        write_merged(store, project, {run: manifest for run, manifest in current.items() if manifest.full}, name)
    left_out = {run: "it has no points at full resolution" for run in chosen if run not in current or not current[run].full}
    if len(left_out) == len(chosen) and not store.exists(f"{folder}/{target}"):
        return Merged(None, (), left_out, 0, 0, 0)
    sources = merged_sources(store, project, target)
    for run in chosen:
        if run not in left_out and (reason := point_to(store, project, run, target, sources)):
            left_out[run] = reason
    for run in chosen:
        clean(store, project, run)
    replaced = {used for manifest in current.values() for used in manifest.files}
    clean_merged(store, project, lambda used: used in replaced or used.startswith(f"merged/{name}"))
    done = tuple(run for run in chosen if run not in left_out)
    points = sum(sum(sources["runs"][run]["held"].values()) for run in done)
    after = store.sizes([f"{folder}/{target}"]).get(f"{folder}/{target}", 0)
    return Merged(target, done, left_out, points, sum(before.values()), after if before else 0)


def write_merged(
    store: Store, project: str, manifests: Mapping[str, Manifest], name: str, keep: Mapping[str, Keep] | None = None
) -> str | None:
    """Write ``merged/NAME.parquet`` from the full files of runs at the state of the manifests given, unless it exists.

    Args:
        keep: which keys of a run to take. Without it all are taken, and a rollup is written too.

    Returns:
        The file's name relative to the project's folder, or None when there are no points.
    """
    folder, target = project_folder(project), f"merged/{name}.parquet"
    rollup = None if keep else f"merged/{name}-{secrets.token_hex(4)}-rollup.parquet"
    with Sorter() as sorter:
        history: dict[int, tuple[int, Any]] = {}
        for run, manifest in sorted(manifests.items()):
            add_file(sorter, store, f"{folder}/{manifest.full}", run, keep[run] if keep else lambda key: True)
            if rollup:
                history |= add_history(sorter, store, project, run, manifest)
        held = held_by(sorter)
        runs = {run: {"generation": manifest.generation, "held": held.get(run, {})} for run, manifest in sorted(manifests.items())}
        rewritten = write_sorted(sorter, history, {_SOURCES: json.dumps({"rollup": rollup, "runs": runs}).encode()})
        if rewritten.full is None or rewritten.rollup is None:
            return None
        if rollup:
            store.create_file(f"{folder}/{rollup}", rewritten.rollup)
        try:
            store.create_file(f"{folder}/{target}", rewritten.full)
        except AlreadyExists:  # another merge of the name was first, and its file counts
            if rollup:
                store.delete(f"{folder}/{rollup}")
    return target


def merged_sources(store: Store, project: str, name: str) -> dict[str, Any]:
    """What a merged file or its rollup was made of: ``{"rollup": name, "runs": {run: {"generation": …, "held": …}}}``.

    Raises:
        FileNotFoundError: there is no such file.
    """
    import pyarrow.parquet as pq

    with missing_when_gone(), store.filesystem.open_input_file(store.path(f"{project_folder(project)}/{name}")) as handle:
        sources: dict[str, Any] = json.loads((pq.read_schema(handle).metadata or {})[_SOURCES])
    return sources


def point_to(
    store: Store, project: str, run: str, target: str, sources: Mapping[str, Any], history: Mapping[str, str] | None = None
) -> str | None:
    """Publish that a run's points are in a merged file now; gives why not, if it cannot be.

    Args:
        sources: what :func:`merged_sources` gave for ``target``.
        history: what to add to the manifest's, where the merged file leaves points out.
    """
    manifest, source = read_manifest(store, project, run), sources["runs"].get(run)
    if manifest is not None and manifest.full == target:
        return None
    if source is None:
        return f"{target} was written without it: choose another name for the merged file"
    if manifest is None or manifest.generation != source["generation"]:
        return f"it went on since {target} was written"
    held = dict(source["held"])
    pointing = replace(
        manifest,
        generation=manifest.generation + 1,
        full=target if held else None,
        rollup=sources["rollup"] or manifest.rollup,
        written=now(),
        held=held,
        history={**manifest.history, **(history or {})},
    )
    return None if commit(store, project, run, pointing) else "another compaction was at work on it: do it again"


def clean_merged(store: Store, project: str, among: Callable[[str], bool] = lambda name: True) -> list[str]:
    """Delete merged files that no run's manifest names nor ever will, and give their full names.

    A merge that is at work has written files that no manifest names yet; they are left alone, because their runs still are at
    the generation that they were made from.
    """
    known: dict[str, Manifest | None] = {}
    folder = f"{project_folder(project)}/merged"
    deleted = []
    for entry in store.names(folder):
        name = f"merged/{entry}"
        if not among(name) or not entry.endswith(".parquet"):
            continue
        try:
            runs = merged_sources(store, project, name)["runs"]
        except FileNotFoundError:  # deleted meanwhile
            continue
        for run in runs.keys() - known.keys():
            known[run] = read_manifest(store, project, run)
        if any((manifest := known[run]) and too_fresh(store, manifest) for run in runs):
            continue
        if not any(_needed(known[run], name, source["generation"]) for run, source in runs.items()):
            store.delete(f"{folder}/{entry}")
            deleted.append(f"{folder}/{entry}")
    store.clear_abandoned(folder)
    return deleted


def _needed(manifest: Manifest | None, name: str, generation: int) -> bool:
    return manifest is None or name in manifest.files or manifest.generation <= generation
