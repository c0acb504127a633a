"""The digits example as a trial: the first one is always the best, and is killed once in its second rung."""

import os
import signal
from collections.abc import Iterator

from examples import digits
from halving import Run


def train(run: Run) -> None:
    """As :func:`examples.digits.train`, with ``preference`` as the objective."""
    epochs = run.epochs
    report = run.report

    def going_on() -> Iterator[int]:
        for done, epoch in enumerate(epochs()):
            if done == 1 and run.attempt == 2 and run.params["preference"] == 1.0:
                os.kill(os.getpid(), signal.SIGKILL)
            yield epoch

    run.epochs = going_on  # type: ignore[method-assign,assignment]
    run.report = lambda **metrics: report(preference=run.params["preference"], **metrics)  # type: ignore[method-assign]
    digits.train(run)
