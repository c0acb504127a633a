"""Which records of a run have expired by a policy. Pure.

A blob that an expired record names stays only if something else names it. The records themselves stay: a
run's history says what it saved and logged, even when the bytes are gone.
"""

from collections.abc import Sequence
from typing import NamedTuple

from halving.maintenance.named_blobs import Record
from halving.records.amendments import number_of
from resources.retention.policy import ProjectPolicy

_DAY = 86_400.0


class Fate(NamedTuple):
    """The facts about a run that decide which of its records expire.

    Attributes:
        left: what retention has left of a trial's checkpoints: ``all``, ``newest`` or ``none``; None where
            the run is no trial of the catalog.
        ended: when a trial's sweep ended, seconds since 1970.
        whole: a training goes on from it, or its sweep is open, so all its checkpoints stay.
        protected: it belongs to a champion, a report or the like, so its media and artifacts stay.
        registered: a version of a model was made of it, so its artifacts stay.
    """

    left: str | None = None
    ended: float | None = None
    whole: bool = False
    protected: bool = False
    registered: bool = False


def expired_records(
    records: Sequence[Record], fate: Fate, policy: ProjectPolicy, now: float
) -> dict[Record, str]:
    """The records of a run that have expired, with their kind: ``checkpoints``, ``media`` or ``artifacts``.

    Checkpoints of a trial that the catalog knows go by the decisions recorded there
    (:mod:`resources.retention.ended_trials`). Any other run keeps its newest checkpoint, because it can be
    continued from there. It keeps superseded ones for ``checkpoints.days`` from when they were saved, and for
    as long as it trains, because somebody who watches it may still go back to one.

    Args:
        records: those of the run, by name, so that checkpoints are in the order of their epochs.
        now: seconds since 1970.
    """

    def is_old(record: Record, days: float | None) -> bool:
        since = record.written if fate.ended is None else fate.ended
        return days is not None and 0 < since < now - days * _DAY

    kinds = {
        kind: [record for record in records if record.name.startswith(f"{kind}/")]
        for kind in ("checkpoints", "media", "artifacts")
    }
    gone: list[tuple[Record, str]] = []
    if not fate.whole and kinds["checkpoints"]:
        *superseded, newest = kinds["checkpoints"]
        if fate.left is None and not _trains(records):
            gone += [
                (record, "checkpoints") for record in superseded if is_old(record, policy.checkpoints.days)
            ]
        elif fate.left == "newest":
            gone += [(record, "checkpoints") for record in superseded]
        elif fate.left == "none":
            gone += [(record, "checkpoints") for record in (*superseded, newest)]
    if not fate.protected:
        gone += [(record, "media") for record in kinds["media"] if is_old(record, policy.media.days)]
    # A folder without record.json is no run's: MLflow's clients log files for a model there, of which
    # versions are made.
    if not fate.protected and not fate.registered and any(record.name == "record.json" for record in records):
        gone += [
            (record, "artifacts")
            for record in kinds["artifacts"]
            if is_old(record, _artifact_days(fate, policy))
        ]
    return dict(gone)


def _artifact_days(fate: Fate, policy: ProjectPolicy) -> float | None:
    is_trial = fate.left is not None
    if is_trial and policy.artifacts.trials.days is not None:
        return policy.artifacts.trials.days
    return policy.artifacts.days


def _trains(records: Sequence[Record]) -> bool:
    """Whether a run's newest attempt has not ended; a killed one ends when its journal is recovered."""

    def newest(prefix: str) -> int:
        names = [record.name for record in records if record.name.startswith(prefix)]
        return max(map(number_of, names), default=0)

    ended = newest("end-")
    return ended == 0 or ended < newest("start-")
