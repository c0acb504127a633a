"""A recorded trial, trained again in one go, without a platform to ask: ``python -m
halving.rerun.trial_process FILE`` in a worktree.

Without FILE it is in a pod of the recorded image: the request is in the mailbox in the store that the
environment names, as that of a sweep's trial is. There it says first in what it is going to train, and waits
for whoever started it.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput
from halving.records import provenance
from halving.rerun.execution import TrialRequest
from halving.rerun.factors import world_size_of
from halving.rerun.gang import train_gang
from halving.run import signals
from halving.run.init import open_trial
from halving.store.store import Store
from halving.trial.context import TrialContext
from halving.trial.import_string import import_function, source_digest
from halving.trial.mailbox import VARIABLE, Mailbox, read_task
from halving.trial.messages import Granted, Raised, Ready, Stopped

_UNANSWERED_SECONDS = 600.0  # the environments are compared at once; an unavailable store may take its time
_SAID = ("python", "packages", "packages_from", "cuda", "image", "hardware")


class UpTo:
    """A controller that grants so many epochs and stops the trial there."""

    def __init__(self, epochs: int) -> None:
        self.granted = epochs

    def reached(
        self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None
    ) -> int:
        return epoch


def main(path: str) -> int:
    """Train, and give the exit status: 1 where the trainable raised."""
    signals.listen()
    request = TrialRequest(**json.loads(Path(path).read_text()))
    raised = _train(request, request.given["root"], provenance.capture(Store(request.given["root"])))
    return 0 if raised is None else 1


def main_in_pod() -> int:
    """As :func:`main`, for the starter of the pod, who gets messages and no exit status.

    Raises:
        SystemExit: with status 143 after a SIGTERM, when the run is finished as terminated. No message is
            sent: the cluster says why, and whoever deleted the pod has cleared the mailbox.
    """
    signals.listen(even_ignored=True)
    store = Store()
    folder = os.environ.get(VARIABLE)
    if not folder:
        sys.exit(
            f"{VARIABLE} is not set: give the file of a rerun's request, or have halving rerun start this "
            "program in a pod"
        )
    mailbox = Mailbox(store, folder, sends="trial", reads="worker")
    try:
        request = _understood(read_task(store, folder))
        captured = provenance.capture(store)
        captured["image"] = provenance.image(request.image)
        mailbox.send(Ready({name: captured[name] for name in _SAID}, source_digest(request.trainable)))
        if not isinstance(mailbox.receive(_UNANSWERED_SECONDS), Granted):
            sys.exit(f"nobody answered within {_UNANSWERED_SECONDS:.0f} s, so nothing is trained")
        raised = _train(request, store.root, captured)
    except InvalidInput as error:
        raised = str(error)
    mailbox.send(Stopped() if raised is None else Raised(raised, final=True, checkpoint=None))
    return 0  # what the trainable raised is in the message, and in the run's end


def _train(request: TrialRequest, root: str, captured: dict[str, Any]) -> str | None:
    """Train; gives the traceback of what the trainable raised, else None."""
    parent = {**request.given["parent"], "trainable_sha256": source_digest(request.trainable)}
    given = {**request.given, "root": root, "parent": parent, "provenance": captured}
    context = TrialContext.from_record(request.recorded, **given)
    if (processes := world_size_of(context.resources)) > 1:
        return train_gang(context, request.trainable, request.epochs, request.threads or 1, processes)
    train = import_function("trainable", request.trainable)
    if (torch := sys.modules.get("torch")) and request.threads:
        torch.set_num_threads(request.threads)
    run = open_trial(context, UpTo(request.epochs))
    try:
        train(run)
    except Exception:  # noqa: BLE001  # whatever the trainable raises is how the rerun ended
        traceback.print_exc()
        if not run.is_stopping:  # a SIGTERM that also went to its children makes data loaders raise
            run.finish("failed")
            return traceback.format_exc().strip()
    if run.is_stopping:  # by a SIGTERM: it has not come to its last epoch
        run.finish("terminated")
        raise SystemExit(signals.STATUS)
    run.finish()
    return None


def _understood(task: bytes) -> TrialRequest:
    try:
        return TrialRequest(**json.loads(task))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"the request of the rerun is not accepted by the halving SDK of this image: {error}. Start "
            "the rerun from the version of "
            "halving that the image has"
        ) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if sys.argv[1:] else main_in_pod())
