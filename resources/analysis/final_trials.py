"""The trials of a sweep's final training, each in one line."""

from collections.abc import Iterable
from dataclasses import dataclass

from resources.analysis.reasons import short_reason
from resources.catalog import RungResultRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.search.state import Status


@dataclass(frozen=True)
class FinalTrial:
    """One training of the winner's params.

    Attributes:
        seed: its number, from 0.
        reported: the objective at its end. Its rows were trained on if the validation split was, so it says
            how well they were learned, and nothing about other rows.
        epochs: trained up to its end; None before.
        checkpoint: its last one, which counts; empty before its end.
        error, reason: why its last attempt failed or was preempted, and that in short.
    """

    seed: int
    trial: int
    key: str
    status: str
    reported: float | None
    epochs: int | None
    attempts: int
    preemptions: int
    seconds: float
    checkpoint: str
    error: str | None
    reason: str | None

    @property
    def complete(self) -> bool:
        """Whether it has come to its end and has a checkpoint to be judged by."""
        return self.status == Status.COMPLETED and bool(self.checkpoint)


def final_trials(
    sweep: str, trials: Iterable[TrialRow], results: Iterable[RungResultRow]
) -> list[FinalTrial]:
    """The final training as far as it has begun, by seed.

    Args:
        trials, results: of the sweep, or more of them; those of the search are left out.
    """
    ends = {result.trial: result for result in results if result.value is not None}
    return [
        FinalTrial(
            seed=trial.final,
            trial=trial.number,
            key=trial_key(sweep, trial.number),
            status=trial.status,
            reported=end.value if (end := ends.get(trial.number)) else None,
            epochs=end.epochs if end else None,
            attempts=trial.attempt,
            preemptions=trial.preemptions,
            seconds=trial.seconds,
            checkpoint=(end.checkpoint or "") if end else "",
            error=trial.error,
            reason=short_reason(trial.error),
        )
        for trial in sorted(trials, key=lambda trial: trial.number)
        if trial.final is not None
    ]
