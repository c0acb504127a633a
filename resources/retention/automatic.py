"""Automatic retention, at most once a day: whether it is due, and the record of the last one.

It is for a store on a machine's own disk. :mod:`halving.maintenance.daily` starts it where runs end: at the
end of a script's run, of a sweep's job and of ``halving sweep``, in the sensors' daemon and in a server.
"""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from halving import Store
from halving.errors import NotFound
from halving.store.json_files import to_json
from halving.text import size
from resources.catalog.opening import has_catalog, url_of_catalog
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.retention.carry_out import Outcome
from resources.retention.cold import KIND as MOVED
from resources.retention.policy_file import PolicyFile

_LAST = "retention/last.json"


def why_not_due(store: Store, file: PolicyFile, now: datetime | None = None) -> str | None:
    """Why automatic retention is not due now; None where it is.

    Raises:
        StoreError: the store cannot be read.
    """
    if not file.policy.automatic:
        return "the policy does not say automatic: true"
    if store.folder is None or load_cluster() is not None:
        return "an object store, or a cluster's, is cleaned by the schedule nightly_retention"
    if file.shipped and not url_of_catalog(store).startswith("sqlite"):
        return (
            "the shipped default is for a laptop, and this catalog is a server's: a file retention.yaml in "
            "the store says what is kept"
        )
    if not has_catalog(store) and store.names("datasets"):
        return "the store has snapshots of datasets, and no catalog: HALVING_CATALOG says where it is"
    last = read_last(store)
    today = (now or datetime.now(UTC)).date()
    if last is not None and datetime.fromtimestamp(last["time"], UTC).date() == today:
        return "it was carried out today"
    return None


def write_last(store: Store, outcome: Outcome, now: datetime | None = None) -> None:
    """Write the time and the outcome of a retention into the store, for :func:`read_last`."""
    content = {
        "time": (now or datetime.now(UTC)).timestamp(),
        "bytes": outcome.bytes,
        "gone": [row._asdict() for row in outcome.gone],
        "policy": outcome.policy.source,
        "shipped": outcome.policy.shipped,
        "notes": outcome.notes(),
    }
    store.replace(_LAST, to_json(content))


def read_last(store: Store) -> dict[str, Any] | None:
    """Read the record of the last retention, whose ``time`` is in seconds since 1970; None without one."""
    try:
        record: dict[str, Any] = json.loads(store.read(_LAST))
    except (NotFound, ValueError):
        return None
    return record


def summarize(last: dict[str, Any]) -> str:
    """Say in one line what the last retention deleted and moved, and by which policy."""
    kinds: Counter[str] = Counter()
    for row in last["gone"]:
        kinds[row["kind"]] += row["count"]
    moved = kinds.pop(MOVED, 0)
    parts = []
    if kinds:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        parts.append(f"{size(last['bytes'])} deleted ({counts})")
    if moved:
        parts.append(f"{moved:,} {MOVED}")
    change = ""
    if last["shipped"]:
        change = "; a file retention.yaml in the store changes what is kept"
    notes = "".join(f"; {note}" for note in last.get("notes", ()))
    return f"old data: {', '.join(parts) or 'nothing had to go'}, by {last['policy']}{change}{notes}"
