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
        seed: the number of its seed, from 0.
        reported: the objective at its end; None before. If the validation split was trained on, it tells how
            well those rows were learned, and nothing about other rows.
        epochs: the number of epochs that were trained until its end; None before.
        checkpoint: its last checkpoint; "" before its end.
        error: why its last attempt failed or was preempted.
        reason: the error in one line.
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
        """Whether it has ended with a checkpoint that can be judged."""
        return self.status == Status.COMPLETED and bool(self.checkpoint)


def final_trials(
    sweep: str, trials: Iterable[TrialRow], results: Iterable[RungResultRow]
) -> list[FinalTrial]:
    """The trainings of the final training that have begun, by seed.

    Args:
        trials, results: of the sweep; those of the search are left out.
    """
    ends = {result.trial: result for result in results if result.value is not None}
    finals = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.final is None:
            continue
        end = ends.get(trial.number)
        reported = None
        epochs = None
        checkpoint = ""
        if end:
            reported = end.value
            epochs = end.epochs
            checkpoint = end.checkpoint or ""
        finals.append(
            FinalTrial(
                seed=trial.final,
                trial=trial.number,
                key=trial_key(sweep, trial.number),
                status=trial.status,
                reported=reported,
                epochs=epochs,
                attempts=trial.attempt,
                preemptions=trial.preemptions,
                seconds=trial.seconds,
                checkpoint=checkpoint,
                error=trial.error,
                reason=short_reason(trial.error),
            )
        )
    return finals
