"""What a training has left out to go on: steps whose loss or gradients were not finite, and checkpoints that
the store did not take.

The steps are counted in metrics (:mod:`halving.distributed.nonfinite`), so that what a killed attempt has
left out is known, too; the checkpoints in the record of the next one that the store took, or in that of the
attempt's end (:mod:`halving.checkpoints.misses`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from halving import Store
from halving.errors import NotFound, StoreError
from halving.metrics.points import Points
from halving.query.runs import read_run
from halving.query.skipped_checkpoints import SkippedCheckpoints, skipped_checkpoints
from halving.query.units import counted
from halving.records.run_record import RunRecords, SavedCheckpoint

COUNTED = re.compile(r"system/(?:skipped_steps|nonfinite_(loss|gradients)/rank\.(\d+))")
"""The metrics that count steps that were not finite; and by whose loss or gradients."""
_STEPS = "system/skipped_steps"


@dataclass(frozen=True)
class Culprit:
    """A rank that began steps that were not finite.

    Attributes:
        loss: in how many of them its loss was not finite.
        gradients: in how many its gradients alone.
    """

    rank: int
    loss: int
    gradients: int


@dataclass(frozen=True)
class SkippedSteps:
    """Steps that an attempt has left out because they were not finite.

    Attributes:
        last_step, last_at: the last of them, and when, in Unix seconds.
        culprits: by rank; none where only the sum of all ranks' gradients was not finite.
    """

    attempt: int
    count: int
    last_step: int
    last_at: float
    culprits: list[Culprit]

    @property
    def text(self) -> str:
        moment = datetime.fromtimestamp(self.last_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        parts = [f"the loss of rank {each.rank} in {each.loss}" for each in self.culprits if each.loss]
        parts += [
            f"the gradients of rank {each.rank} in {each.gradients}"
            for each in self.culprits
            if each.gradients
        ]
        what = ", ".join(parts) or "only the sum of all ranks' gradients"
        return (
            f"attempt {self.attempt} left out {counted(self.count, 'step')} that "
            f"{'was' if self.count == 1 else 'were'} NaN or infinite "
            f"({what}), the last at step {self.last_step}, {moment}: lower the learning rate, or look at "
            "the data of these steps"
        )


@dataclass(frozen=True)
class Skips:
    """What a run has left out, by attempt; the newest at the end."""

    steps: list[SkippedSteps]
    checkpoints: list[SkippedCheckpoints]

    @property
    def texts(self) -> list[str]:
        """A sentence for each."""
        return [*(each.text for each in self.steps), *(each.text for each in self.checkpoints)]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "texts": self.texts}


def skips_of(
    store: Store,
    project: str,
    run: str,
    points: Mapping[str, Points],
    saved: Sequence[SavedCheckpoint] | None = None,
) -> Skips | None:
    """What a run has left out; None while the store cannot say, and of a run without a record.

    Steps whose points retention has dropped are not known any more.

    Args:
        points: of all attempts, by metric; those that :data:`COUNTED` names are looked at.
        saved: its checkpoints, where they have been read already.
    """
    try:
        attempts = read_run(store, project, run).attempts
        saved = RunRecords(store, project, run).checkpoints() if saved is None else saved
    except (NotFound, StoreError):
        return None
    counts = {key: _greatest(of_key) for key, of_key in points.items() if COUNTED.fullmatch(key)}
    return Skips(skipped_steps(counts), skipped_checkpoints(saved, attempts))


Counts = Mapping[str, Mapping[int, tuple[int, int, float]]]
"""By metric and attempt: the greatest count, and the step and the Unix time at which it was reached."""


def _greatest(points: Points) -> dict[int, tuple[int, int, float]]:
    """The greatest count of each attempt."""
    greatest: dict[int, tuple[int, int, float]] = {}
    columns = (points.attempt.tolist(), points.value.tolist(), points.step.tolist(), points.time.tolist())
    for attempt, value, step, time in zip(*columns, strict=True):
        if math.isfinite(value):  # else it is the trainable's own, under this name
            greatest[attempt] = max(greatest.get(attempt, (0, 0, 0.0)), (int(value), step, time / 1000))
    return greatest


def skipped_steps(counts: Counts) -> list[SkippedSteps]:
    """The steps that each attempt has left out."""
    ranks = sorted({int(name[2]) for key in counts if (name := COUNTED.fullmatch(key)) and name[2]})

    def begun(attempt: int, what: str, rank: int) -> int:
        return counts.get(f"system/nonfinite_{what}/rank.{rank}", {}).get(attempt, (0, 0, 0.0))[0]

    skipped = []
    for attempt, (count, step, at) in sorted(counts.get(_STEPS, {}).items()):
        culprits = [
            Culprit(rank, begun(attempt, "loss", rank), begun(attempt, "gradients", rank)) for rank in ranks
        ]
        skipped.append(
            SkippedSteps(attempt, count, step, at, [each for each in culprits if each.loss or each.gradients])
        )
    return skipped
