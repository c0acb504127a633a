"""The steps that a training skipped as not finite, and the checkpoints that the store did not take.

The steps are counted in metrics (:mod:`halving.distributed.nonfinite`), so that those of a killed attempt are
known, too. The checkpoints are listed in the record of the next one that the store took, or in that of the
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
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.text import count_of

COUNTED = re.compile(r"system/(?:skipped_steps|nonfinite_(loss|gradients)/rank\.(\d+))")
"""Names of the metrics that count steps that were not finite, in all and by loss or gradients of a rank."""
_STEPS = "system/skipped_steps"


@dataclass(frozen=True)
class Culprit:
    """A rank whose loss or gradients were not finite in some steps.

    Attributes:
        loss: the number of steps in which its loss was not finite.
        gradients: the number of steps in which only its gradients were not finite.
    """

    rank: int
    loss: int
    gradients: int


@dataclass(frozen=True)
class SkippedSteps:
    """Steps that an attempt skipped because they were not finite.

    Attributes:
        last_step: the last of these steps.
        last_at: the time of that step, in seconds since the epoch.
        culprits: the ranks with such steps; none if only the sum of all ranks' gradients was not finite.
    """

    attempt: int
    count: int
    last_step: int
    last_at: float
    culprits: list[Culprit]

    @property
    def text(self) -> str:
        last = datetime.fromtimestamp(self.last_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        losses = [rank for rank in self.culprits if rank.loss]
        gradients = [rank for rank in self.culprits if rank.gradients]
        parts = [f"the loss of rank {rank.rank} in {rank.loss}" for rank in losses]
        parts += [f"the gradients of rank {rank.rank} in {rank.gradients}" for rank in gradients]
        causes = ", ".join(parts) or "only the sum of all ranks' gradients"
        were = "were"
        if self.count == 1:
            were = "was"
        return (
            f"attempt {self.attempt} left out {count_of(self.count, 'step')} that {were} NaN or infinite "
            f"({causes}), the last at step {self.last_step}, {last}: lower the learning rate, or look at "
            "the data of these steps"
        )


@dataclass(frozen=True)
class Skips:
    """What a run skipped, by attempt, with the newest at the end."""

    steps: list[SkippedSteps]
    checkpoints: list[SkippedCheckpoints]

    @property
    def texts(self) -> list[str]:
        """A sentence on each attempt's steps, and on each attempt's checkpoints."""
        return [*(steps.text for steps in self.steps), *(skipped.text for skipped in self.checkpoints)]

    def as_dict(self) -> dict[str, Any]:
        """These facts as plain data, with :attr:`texts`."""
        return {**asdict(self), "texts": self.texts}


def skips_of(
    store: Store,
    project: str,
    run: str,
    points: Mapping[str, Points],
    saved: Sequence[SavedCheckpoint] | None = None,
) -> Skips | None:
    """Find what a run skipped; None while the store cannot be read, and for a run without a record.

    Steps whose points retention has dropped are lost.

    Args:
        points: of all attempts, by metric; only those that :data:`COUNTED` matches matter.
        saved: the run's checkpoints, if they have been read already.
    """
    try:
        attempts = read_run(store, project, run).attempts
        if saved is None:
            saved = RunRecords(store, project, run).checkpoints()
    except (NotFound, StoreError):
        return None
    counts = {key: _greatest(of_key) for key, of_key in points.items() if COUNTED.fullmatch(key)}
    return Skips(skipped_steps(counts), skipped_checkpoints(saved, attempts))


Counts = Mapping[str, Mapping[int, tuple[int, int, float]]]
"""The greatest count by metric and attempt, with the step and the time at which it was reached."""


def _greatest(points: Points) -> dict[int, tuple[int, int, float]]:
    """The greatest count of each attempt."""
    greatest: dict[int, tuple[int, int, float]] = {}
    columns = (points.attempt.tolist(), points.value.tolist(), points.step.tolist(), points.time.tolist())
    for attempt, value, step, time in zip(*columns, strict=True):
        if math.isfinite(value):  # otherwise the trainable itself logged it under this name
            greatest[attempt] = max(greatest.get(attempt, (0, 0, 0.0)), (int(value), step, time / 1000))
    return greatest


def skipped_steps(counts: Counts) -> list[SkippedSteps]:
    """The steps that each attempt skipped."""
    names = [name for name in map(COUNTED.fullmatch, counts) if name]
    ranks = sorted({int(name[2]) for name in names if name[2]})

    def count_of(attempt: int, part: str, rank: int) -> int:
        return counts.get(f"system/nonfinite_{part}/rank.{rank}", {}).get(attempt, (0, 0, 0.0))[0]

    skipped = []
    for attempt, (count, step, time) in sorted(counts.get(_STEPS, {}).items()):
        culprits = []
        for rank in ranks:
            loss = count_of(attempt, "loss", rank)
            gradients = count_of(attempt, "gradients", rank)
            if loss or gradients:
                culprits.append(Culprit(rank, loss, gradients))
        skipped.append(SkippedSteps(attempt, count, step, time, culprits))
    return skipped
