"""What a page says of a sweep: its trials, rungs and leaderboard, and its report's scores."""

import math
from collections.abc import Sequence
from typing import Any

from halving.store.store import Store
from resources.analysis.summary import summarize
from resources.analysis.timeline import Milestone, timeline_of
from resources.analysis.trial_list import trials_of
from resources.catalog import Catalog, SweepRow
from resources.registry.leaderboard import outcome_of, report_data
from server.errors import reasons_without_root
from server.sharing.places import without_folders
from server.sharing.secret_values import without_secrets
from server.sharing.target import Target

MAX_LISTED = 100
"""Of the best trials, and of those that failed."""
_MAX_MILESTONES = 2_000
_SUMMARY = (
    "sweep",
    "project",
    "status",
    "control",
    "objective",
    "direction",
    "objectives",
    "planned",
    "counts",
    "rungs",
    "infeasible",
    "epochs_trained",
    "epochs_full",
    "final_seeds",
    "seconds",
    "gpu_seconds",
    "seconds_saved",
)


def read_sweep(store: Store, catalog: Catalog, target: Target) -> dict[str, Any]:
    """What the API says of a sweep, as far as a page shows it.

    Raises:
        NotFound: there is no such sweep, or it is of none of the target's projects.
    """
    with catalog.read() as session:
        row = session.get(SweepRow, target.name)
        project = None
        if row is not None:
            project = row.project
        target.check(project, f"sweep {target.name!r}")
        row = catalog.sweep(session, target.name)  # raises, where there is none
    summary = summarize(catalog, target.name)
    report, version = outcome_of(catalog, target.name)
    summed = summary.as_dict()
    scores = None
    if report is not None:
        contents = report_data(store, report)
        scores = {
            "metrics": report.metrics,
            "created_at": report.created_at,
            "gates": [
                {name: gate.get(name) for name in ("name", "outcome", "about", "reason")}
                for gate in contents.get("gates") or []
            ],
            "final": contents.get("final"),
        }
    model = None
    if version is not None:
        model = {"model": version.model, "version": version.version, "stage": version.stage}
    trials = trials_of(catalog, target.name)
    failed = [line for line in trials if line.error]
    body = {
        **{name: summed[name] for name in _SUMMARY},
        "saved": summary.saved,
        "created_at": row.created_at,
        "finished_at": row.finished_at,
        "snapshot": row.snapshot,
        "commit": row.commit,
        "spec": row.spec,
        "standings": summed["standings"][:MAX_LISTED],
        "ranked": len(summed["standings"]),
        "started": len(trials),
        "errors": [{"key": line.key, "error": line.error} for line in failed[:MAX_LISTED]],
        "failed": len(failed),
        "milestones": _thinned(timeline_of(catalog, target.name).milestones),
        "report": scores,
        "model": model,
    }
    cleaned: dict[str, Any] = without_secrets(without_folders(reasons_without_root(body, store.root)))
    return cleaned


def _thinned(milestones: Sequence[Milestone]) -> list[dict[str, Any]]:
    """The results for a chart, in order of time; of many those that were the best so far, and some others."""
    results = [
        (milestone, milestone.value)
        for milestone in milestones
        if milestone.value is not None and not milestone.audit
    ]
    stride = len(results) // _MAX_MILESTONES + 1
    kept = []
    low = math.inf
    high = -math.inf
    for place, (milestone, value) in enumerate(results):
        is_new_end = value < low or value > high
        low = min(low, value)
        high = max(high, value)
        if is_new_end or place % stride == 0:
            kept.append({"trial": milestone.trial, "at": milestone.at, "value": value})
    return kept
