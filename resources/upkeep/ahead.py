"""What a store has of sweeps and trials that a catalog does not know yet, because it was written after the
catalog was read.

Restored beside that catalog it would be in the way: a trial is handed out again as the attempt that the
catalog counts next, and its run refuses an attempt that has begun, or params that are not its own; and
nothing is deleted from a store that has a report of a sweep that the catalog does not know. So a backup
leaves it out, and the attempt is trained again.
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
"""By the run of a trial how many attempts a catalog counts; 0 where it has not been handed out."""


def files_ahead(
    store: Store, names: Iterable[str], before: Collection[str], sweeps: set[str], attempts: Attempts
) -> tuple[set[str], bool]:
    """Those of a store's files that a catalog does not know yet, and whether they can be left out: not where
    a compaction has put their points together with others.

    Args:
        before: the files that there were before the catalog was read.
        sweeps: that the catalog has.
        attempts: of their trials.
    """
    ahead: set[str] = set()
    runs: set[tuple[str, str]] = set()
    unknown: dict[tuple[str, str], bool] = {}
    for name in names:
        if (report := _REPORT.fullmatch(name)) and report[1] not in sweeps:
            ahead.add(name)
        if not (found := _RUN.fullmatch(name)) or not (trial := _TRIAL.fullmatch(found[3])):
            continue
        key = found[1] or found[2], found[3]
        if trial[1] not in sweeps:
            if key not in unknown:
                unknown[key] = _is_of_sweep(store, *key, trial[1])
            if unknown[key]:
                ahead.add(name)
        elif not attempts.get(found[3]):
            ahead.add(name)
        elif found[4] == "record.json" and name not in before:
            if int(json.loads(store.read(name))["attempt"]) > attempts[found[3]]:
                ahead.add(name)
        elif (attempt := _attempt_of(found[4])) and attempt > attempts[found[3]]:
            ahead.add(name)
            runs.add(key)
    return ahead, not any(
        max(read_manifest(store, *run).absorbed, default=0) > attempts[run[1]] for run in sorted(runs)
    )


def _attempt_of(file: str) -> int | None:
    """Whose file of a run it is; None: of no single attempt."""
    found = _ATTEMPT.fullmatch(file)
    return int(next(filter(None, found.groups()))) if found else None


def _is_of_sweep(store: Store, project: str, run: str, sweep: str) -> bool:
    """Whether a run that is named like a trial is one, says its record."""
    try:
        record = json.loads(store.read(f"runs/project={project}/{run}/record.json"))
    except (NotFound, ValueError):
        return False
    return bool((record.get("parent") or {}).get("sweep") == sweep)
