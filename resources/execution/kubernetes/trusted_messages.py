"""Checks the messages of a trial's pods.

Any image may run in them, and its messages must change nothing but the trial's own results.
"""

from collections.abc import Iterable
from dataclasses import replace

from halving.errors import InvalidInput
from halving.trial.messages import Granted, Message, ReachedRung, Ready, ReturnedEarly
from resources.sweep_spec import SweepSpec


class TrustedMessages:
    """Checks the messages of one attempt.

    Args:
        metrics: the ones that the trial has to report.

    Attributes:
        granted: the epochs that were granted to the trial last.
    """

    def __init__(self, metrics: Iterable[str], granted: int) -> None:
        self._metrics = set(metrics)
        self.granted = granted

    @classmethod
    def of_spec(cls, spec: SweepSpec, granted: int) -> "TrustedMessages":
        """Make the check for an attempt at a sweep's trial."""
        return cls({objective.metric for objective in spec.objectives} | spec.bounds.keys(), granted)

    def check(self, message: Message | Granted | Ready) -> Message:
        """Check a message; return it with the metrics of the spec alone.

        Raises:
            InvalidInput: a trial may not send it.
        """
        if isinstance(message, Granted):
            raise InvalidInput(
                f"the trial's message {message!r} is not accepted: only the platform grants epochs"
            )
        if isinstance(message, Ready):
            raise InvalidInput(
                f"the trial's message {message!r:.80} is not accepted: only the process of a rerun sends it"
            )
        if not isinstance(message, ReachedRung | ReturnedEarly):
            return message
        if isinstance(message, ReachedRung) and message.epoch != self.granted:
            raise InvalidInput(
                f"ReachedRung.epoch = {message.epoch} is not accepted: give {self.granted}, as granted"
            )
        if isinstance(message, ReturnedEarly) and message.epoch >= self.granted:
            raise InvalidInput(
                f"ReturnedEarly.epoch = {message.epoch} is not accepted: give less than the {self.granted} "
                "granted"
            )
        if missing := self._metrics - message.values.keys():
            raise InvalidInput(
                f"the trial's message without values of {sorted(missing)} is not accepted: give "
                f"{sorted(self._metrics)}"
            )
        return replace(message, values={metric: float(message.values[metric]) for metric in self._metrics})
