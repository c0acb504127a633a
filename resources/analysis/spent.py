"""The training that a sweep's search took, and the training that early stopping saved."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from resources.catalog import AttemptRow, RungResultRow, TrialRow
from resources.search.state import Rules, SearchState, Status, TrialState

ResultsAt = Mapping[tuple[int, int], RungResultRow]
"""Results by trial and rung."""


@dataclass(frozen=True)
class Saved:
    """The training that early stopping saved of a trial.

    Attributes:
        seconds: an estimate of the training time.
        attempt: the last attempt that led to a result; its resources count for the saved time.
    """

    trial: int
    epochs: int
    seconds: float
    attempt: int


def saved_by_early_stopping(state: SearchState, results: ResultsAt) -> Iterator[Saved]:
    """The training that was saved, trial by trial.

    The seconds of a saved epoch are those of the trial's epochs, or the sweep's average if that is less,
    because a short training is mostly start-up. So this is a low estimate.
    """
    average = _seconds_per_epoch([result for result in results.values() if result.value is not None])
    for trial in state.trials:
        counted = [results[trial.number, rung] for rung in range(len(trial.counted))]
        trained = max((result.epochs for result in counted), default=0)
        left = _epochs_left(state.rules, trial, trained)
        if left:
            seconds = left * min(average, _seconds_per_epoch(counted))
            yield Saved(trial.number, left, seconds, counted[-1].attempt)


def gpus_of_attempts(session: Session, sweep: str) -> dict[tuple[int, int], int]:
    """The GPUs of each attempt on all its nodes, by trial and attempt."""
    query = select(AttemptRow.trial, AttemptRow.attempt, AttemptRow.nodes * AttemptRow.gpus).where(
        AttemptRow.sweep == sweep
    )
    return {(trial, attempt): gpus for trial, attempt, gpus in session.execute(query)}


def spent_and_saved(
    state: SearchState, trials: Sequence[TrialRow], results: ResultsAt, gpus: Mapping[tuple[int, int], int]
) -> dict[str, Any]:
    """The training that a search took and saved, as fields of a sweep's summary.

    Time without a result, as of attempts that crashed, counts with the GPUs of the trial's newest attempt.

    Args:
        gpus: the number of GPUs by trial and attempt; 0 for attempts that are left out.
    """
    trained = 0
    audit_epochs = 0
    audit_seconds = 0.0
    gpu_seconds = 0.0
    saved = list(saved_by_early_stopping(state, results))
    for trial in state.trials:
        of_trial = [results[trial.number, rung] for rung in range(len(trial.results))]
        counted = of_trial[: len(trial.counted)]
        audit = of_trial[len(trial.counted) :]
        epochs = max((result.epochs for result in counted), default=0)
        trained += epochs
        without_result = trials[trial.number].seconds - sum(result.seconds for result in of_trial)
        gpu_seconds += sum(result.seconds * gpus.get((trial.number, result.attempt), 0) for result in counted)
        gpu_seconds += without_result * gpus.get((trial.number, trials[trial.number].attempt), 0)
        audit_epochs += max(
            (result.epochs - epochs for result in audit if result.value is not None), default=0
        )
        audit_seconds += sum(result.seconds for result in audit)
    return {
        "epochs_trained": trained,
        "epochs_full": trained + sum(part.epochs for part in saved),
        "audit_epochs": audit_epochs,
        "seconds": sum(trial.seconds for trial in trials) - audit_seconds,
        "seconds_saved": sum(part.seconds for part in saved),
        "audit_seconds": audit_seconds,
        "gpu_seconds": gpu_seconds,
        "gpu_seconds_saved": sum(part.seconds * gpus.get((part.trial, part.attempt), 0) for part in saved),
    }


def _seconds_per_epoch(results: Sequence[RungResultRow]) -> float:
    last: dict[int, int] = {}
    for result in results:
        last[result.trial] = max(result.epochs, last.get(result.trial, 0))
    return sum(result.seconds for result in results) / max(1, sum(last.values()))


def _epochs_left(rules: Rules, trial: TrialState, epochs: int) -> int:
    """The epochs up to the last rung that were not trained, because the trial was stopped early."""
    stopped_early = trial.audited is not None or trial.status in (Status.PAUSED, Status.STOPPED)
    if not stopped_early or not epochs:
        return 0
    return max(0, rules.ladder(trial.number)[-1] - epochs)
