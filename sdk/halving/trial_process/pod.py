"""``python -m halving.trial_process.pod``: a trial in its own pod, in any image that has the SDK.

``HALVING_ROOT`` names the store, and ``HALVING_MAILBOX`` the attempt's mailbox in it, in which the trial is described and its worker
answers. The pod needs no other address and no other credential.
"""

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from halving.errors import InvalidInput
from halving.records import provenance
from halving.run import signals
from halving.store.retry import retry_while_unavailable
from halving.store.store import Store
from halving.trial.context import ObjectiveRule, TrialContext
from halving.trial.import_string import source_digest
from halving.trial.mailbox import Mailbox
from halving.trial.messages import Granted, Interrupted, Message, Raised
from halving.trial_process.main import run_trial

VARIABLE = "HALVING_MAILBOX"
_UNANSWERED_SECONDS = 600.0  # a worker waits less than that for an unavailable database


@dataclass(frozen=True)
class Task:
    """What a trial's process is started with; as in :func:`halving.trial_process.main.run_trial`."""

    context: TrialContext
    trainable: str
    granted: int
    threads: int


def post_task(store: Store, folder: str, task: Task) -> None:
    """Describe a trial in its mailbox, for the pod that will be started.

    Raises:
        StoreError: the store is unavailable, or refuses.
    """
    store.create(_task_file(folder), json.dumps(asdict(task), sort_keys=True).encode())


class MailChannel:
    """A trial's connection to its worker, through the store."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def send(self, message: Message) -> None:
        self._mailbox.send(message)

    def recv(self) -> Granted:
        """The worker's answer. When none has come for ten minutes, the worker is gone, and this process ends as by SIGTERM."""
        answer = self._mailbox.receive(_UNANSWERED_SECONDS)
        if answer is None:
            self._mailbox.send(Interrupted(f"the trial's worker gave no answer within {_UNANSWERED_SECONDS:.0f} s"))
            signal.raise_signal(signal.SIGTERM)
        if not isinstance(answer, Granted):
            raise InvalidInput(f"the worker's answer {answer!r} is not accepted: give Granted")
        return answer


def main() -> None:
    """Run the trial that the environment names.

    Raises:
        SystemExit: with status 143 after a SIGTERM, when the checkpoint is saved.
    """
    signals.listen(even_ignored=True)
    store, folder = Store(), os.environ.get(VARIABLE)
    if not folder:
        sys.exit(f"{VARIABLE} is not set: this program is started in a trial's pod, by the trial's worker")
    mailbox = Mailbox(store, folder, sends="trial", reads="worker")
    try:
        task = _understood(retry_while_unavailable(store, f"the trial of {folder}", partial(store.read, _task_file(folder))))
    except InvalidInput as error:
        mailbox.send(Raised(str(error), final=True, checkpoint=None))
        sys.exit(str(error))
    # The worker knows the image's name, and this process what the image contains.
    captured = provenance.capture(store)
    captured["image"] = captured["image"] or task.context.provenance.get("image")
    parent = {**task.context.parent, "trainable_sha256": source_digest(task.trainable)}
    context = replace(task.context, root=store.root, provenance=captured, parent=parent)
    try:
        run_trial(context, task.trainable, task.granted, MailChannel(mailbox), task.threads)
    except SystemExit as ended:
        if ended.code == signals.STATUS:
            mailbox.send(Interrupted(f"the trial's pod {captured['hardware']['host']} received SIGTERM and saved a checkpoint"))
        raise


def _task_file(folder: str) -> str:
    return f"{folder}/task.json"


def _understood(data: bytes) -> Task:
    try:
        given: dict[str, Any] = json.loads(data)
        context = given.pop("context")
        context["objectives"] = tuple(ObjectiveRule(**rule) for rule in context["objectives"])
        context["bounded"] = tuple(context["bounded"])
        context["divergence"] = {metric: (low, high) for metric, (low, high) in context["divergence"].items()}
        return Task(context=TrialContext(**context), **given)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"the trial's task is not accepted by the halving SDK of this image: {error}; install the SDK of the platform's version in it"
        ) from None


if __name__ == "__main__":
    main()
