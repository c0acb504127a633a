"""Files of sweeps and trials that are newer than a dump of the catalog, and that a backup leaves out.

Restored beside that catalog they would be in the way. The catalog hands out a trial as the attempt that it
counts next, and the trial's run refuses an attempt that has begun, or params that are not its own. And
retention deletes nothing from a store that has a report of a sweep that the catalog does not know. So a
backup leaves these files out, and the attempt is trained again.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping

from halving.errors import NotFound
from halving.metrics.manifest import read_manifest
from halving.store.store import Store

_RUN = re.compile(r"(?:runs/project=([^/]+)/|metrics/project=([^/]+)/run=)([^/]+)/(.+)")
_REPORT = re.compile(r"reports/(.+)\.html")
_TRIAL = re.compile(r"(.+)\.\d{4,}")
_ATTEMPT = re.compile(
    r"(?:start|end)-(\d{4,})\.json|checkpoints/\d+-(\d{4,})-\d+\.json|live/(\d{4,})-\d+\.parquet"
)
Attempts = Mapping[str, int]
"""How many attempts a catalog counts of each trial, by its run; 0 where it has not been handed out."""


def find_newer_files(
    store: Store, names: Iterable[str], before: Collection[str], sweeps: set[str], attempts: Attempts
) -> tuple[set[str], bool]:
    """Find the files of a store that a catalog does not know yet, and say whether they can be left out.

    They cannot where a compaction has put their points together with others.

    Args:
        before: the files that the store had before the catalog was read.
        sweeps: the sweeps of the catalog.
        attempts: the attempts of their trials.
    """
    ahead: set[str] = set()
    runs: set[tuple[str, str]] = set()
    unknown: dict[tuple[str, str], bool] = {}
    for name in names:
        if (report := _REPORT.fullmatch(name)) and report[1] not in sweeps:
            ahead.add(name)
        match = _RUN.fullmatch(name)
        if not match:
            continue
        run = match[3]
        trial = _TRIAL.fullmatch(run)
        if not trial:
            continue
        key = match[1] or match[2], run
        file = match[4]
        if trial[1] not in sweeps:
            if key not in unknown:
                unknown[key] = _is_of_sweep(store, *key, trial[1])
            if unknown[key]:
                ahead.add(name)
        elif not attempts.get(run):
            ahead.add(name)
        elif file == "record.json" and name not in before:
            if int(json.loads(store.read(name))["attempt"]) > attempts[run]:
                ahead.add(name)
        elif (attempt := _attempt_of(file)) and attempt > attempts[run]:
            ahead.add(name)
            runs.add(key)
    is_compacted = any(
        max(read_manifest(store, *run).absorbed, default=0) > attempts[run[1]] for run in sorted(runs)
    )
    return ahead, not is_compacted


def _attempt_of(file: str) -> int | None:
    """The attempt that wrote a file of a run; None where it belongs to no single attempt."""
    match = _ATTEMPT.fullmatch(file)
    if match is None:
        return None
    return int(next(filter(None, match.groups())))


def _is_of_sweep(store: Store, project: str, run: str, sweep: str) -> bool:
    """Whether a run that is named like a trial is one, by its record."""
    try:
        record = json.loads(store.read(f"runs/project={project}/{run}/record.json"))
    except (NotFound, ValueError):
        return False
    return bool((record.get("parent") or {}).get("sweep") == sweep)
