"""Training a recorded trial again in one go, without a platform that decides at rungs.

``python -m halving.rerun.trial_process FILE`` does it in a worktree. Without FILE it runs in a pod of the
recorded image, and its request is in the store's mailbox that the environment names, like the task of a
sweep's trial. There it first reports its environment, and waits for the answer of the process that started
it.
"""

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

_UNANSWERED_SECONDS = 600.0  # The answer comes at once, unless the store is unavailable.
_REPORTED = ("python", "packages", "packages_from", "cuda", "image", "hardware")


class UpTo:
    """A controller that grants so many epochs and stops the trial there."""

    def __init__(self, epochs: int) -> None:
        self.granted = epochs

    def report_rung(
        self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None
    ) -> int:
        """Grant nothing more: the trial ends at the epoch that it has reached."""
        return epoch


def main(path: str) -> int:
    """Train, and return the exit status: 1 where the trainable raised."""
    signals.listen()
    request = TrialRequest.from_bytes(Path(path).read_bytes())
    root = request.context["root"]
    error = _train(request, root, provenance.capture(Store(root)))
    return int(error is not None)


def main_in_pod() -> int:
    """Train in a pod, and report to its starter by messages.

    Raises:
        SystemExit: with status 143 after a SIGTERM, when the run is finished as terminated. No message is
            sent: the cluster has the reason, and whoever deleted the pod has cleared the mailbox.
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
        request = _parse_request(read_task(store, folder))
        captured = provenance.capture(store)
        captured["image"] = provenance.image(request.image)
        mailbox.send(Ready({name: captured[name] for name in _REPORTED}, source_digest(request.trainable)))
        if not isinstance(mailbox.receive(_UNANSWERED_SECONDS), Granted):
            sys.exit(f"nobody answered within {_UNANSWERED_SECONDS:.0f} s, so nothing is trained")
        error = _train(request, store.root, captured)
    except InvalidInput as refusal:
        error = str(refusal)
    if error is None:
        mailbox.send(Stopped())
    else:
        mailbox.send(Raised(error, final=True, checkpoint=None))
    return 0  # The message and the run's end have the error of the trainable.


def _train(request: TrialRequest, root: str, captured: dict[str, Any]) -> str | None:
    """Train, and return the traceback of the trainable's error; None without one."""
    parent = {**request.context["parent"], "trainable_sha256": source_digest(request.trainable)}
    own = {**request.context, "root": root, "parent": parent, "provenance": captured}
    context = TrialContext.from_record(request.recorded, **own)
    processes = world_size_of(context.resources)
    if processes > 1:
        return train_gang(context, request.trainable, request.epochs, request.threads or 1, processes)
    train = import_function("trainable", request.trainable)
    torch = sys.modules.get("torch")
    if torch and request.threads:
        torch.set_num_threads(request.threads)
    run = open_trial(context, UpTo(request.epochs))
    try:
        train(run)
    except Exception:  # noqa: BLE001
        # Any error of the trainable is the end of the rerun, unless a SIGTERM came: it makes data loaders
        # raise as well.
        traceback.print_exc()
        if not run.is_stopping:
            run.finish("failed")
            return traceback.format_exc().strip()
    if run.is_stopping:  # A SIGTERM has come before the last epoch.
        run.finish("terminated")
        raise SystemExit(signals.STATUS)
    run.finish()
    return None


def _parse_request(task: bytes) -> TrialRequest:
    try:
        return TrialRequest.from_bytes(task)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"the request of the rerun is not accepted by the halving SDK of this image: {error}. Start "
            "the rerun from the version of halving that the image has"
        ) from None


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(sys.argv[1]))
    sys.exit(main_in_pod())
