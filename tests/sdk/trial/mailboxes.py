"""Both ends of a mailbox for tests."""

from halving import Store
from halving.trial.mailbox import Mailbox, mail_folder

FOLDER = mail_folder("p", "s.0001", 1)


def ends(store: Store) -> tuple[Mailbox, Mailbox]:
    """The trial's end, and the worker's."""
    trial = Mailbox(store, FOLDER, sends="trial", reads="worker")
    worker = Mailbox(store, FOLDER, sends="worker", reads="trial")
    return trial, worker
