"""Which records of a run have expired by a policy: what they name stays only if something else names it.

Pure.

The records themselves stay: a run's history says what it saved and logged, also when the bytes are gone.
"""

from collections.abc import Sequence
from typing import NamedTuple

from halving.maintenance.named_blobs import Record
from halving.records.amendments import number_of
from resources.retention.policy import ProjectPolicy

_DAY = 86_400.0


class Fate(NamedTuple):
    """What is known of a run.

    Attributes:
        left: of a trial, what retention has left of its checkpoints: ``all``, ``newest`` or ``none``; None:
            it is no trial of the catalog.
        ended: when a trial's sweep ended, seconds since 1970.
        whole: somebody goes on from it, or it is searched: all its checkpoints stay.
        protected: it is a champion's, a report's or the like: its media and artifacts stay.
        registered: a version of a model was made of it: its artifacts stay.
    """

    left: str | None = None
    ended: float | None = None
    whole: bool = False
    protected: bool = False
    registered: bool = False


def expired(records: Sequence[Record], fate: Fate, policy: ProjectPolicy, now: float) -> dict[Record, str]:
    """The records of a run that have expired, by their kind: ``checkpoints``, ``media`` or ``artifacts``.

    Of a trial that the catalog knows its decisions count (:mod:`resources.retention.ended_trials`). Any other
    run keeps its newest checkpoint, because it can be continued from there, and superseded ones for
    ``checkpoints.days`` from when they were saved, and for as long as it trains: who watches it may still go
    back to one.

    Args:
        records: those of the run, by name, so that checkpoints are in the order of their epochs.
        now: seconds since 1970.
    """

    def is_old(record: Record, days: float | None) -> bool:
        since = fate.ended if fate.ended is not None else record.written
        return days is not None and 0 < since < now - days * _DAY

    kinds = {
        kind: [record for record in records if record.name.startswith(f"{kind}/")]
        for kind in ("checkpoints", "media", "artifacts")
    }
    gone: list[tuple[Record, str]] = []
    if not fate.whole and kinds["checkpoints"]:
        *superseded, newest = kinds["checkpoints"]
        if fate.left is None:
            superseded = [] if _trains(records) else superseded
            gone += [
                (record, "checkpoints") for record in superseded if is_old(record, policy.checkpoints.days)
            ]
        elif fate.left != "all":
            gone += [(record, "checkpoints") for record in superseded]
            gone += [(newest, "checkpoints")] if fate.left == "none" else []
    if not fate.protected:
        gone += [(record, "media") for record in kinds["media"] if is_old(record, policy.media.days)]
    # Files that MLflow's clients log for a model are recorded in a folder that is no run's: versions are made
    # of them.
    if not fate.protected and not fate.registered and any(record.name == "record.json" for record in records):
        gone += [
            (record, "artifacts")
            for record in kinds["artifacts"]
            if is_old(record, _artifact_days(fate, policy))
        ]
    return dict(gone)


def _artifact_days(fate: Fate, policy: ProjectPolicy) -> float | None:
    trials = policy.artifacts.trials.days
    return policy.artifacts.days if fate.left is None or trials is None else trials


def _trains(records: Sequence[Record]) -> bool:
    """Whether a run's newest attempt has not ended; one that was killed has when its journal was
    recovered.
    """
    started, ended = (
        max((number_of(record.name) for record in records if record.name.startswith(prefix)), default=0)
        for prefix in ("start-", "end-")
    )
    return ended == 0 or ended < started
