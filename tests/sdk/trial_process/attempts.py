"""Attempts at a trial for tests: its context, its messages, and its end in the store."""

import json
import multiprocessing
from pathlib import Path
from typing import Any

from halving import Store
from halving.records.run_record import RunRecords
from halving.trial.context import ObjectiveRule, TrialContext
from halving.trial.messages import Granted, Message
from halving.trial_process.main import run_trial

CHECKOUT = Path(__file__).parents[3]
TRAINABLES = "tests.sdk.trial_process.trainables"


def context(store: Store, attempt: int = 1, **params: Any) -> TrialContext:
    return TrialContext(
        root=store.root,
        project="p",
        run="s.0001",
        attempt=attempt,
        params=params,
        seed=1,
        objectives=(ObjectiveRule("score"),),
        max_epochs=9,
        dataset_name="d",
        dataset_digest="sha256:" + "0" * 64,
        parent={"sweep": "s"},
        provenance={"git": None},
    )


def execute(store: Store, trainable: str, granted: int, *answers: Granted, attempt: int = 1) -> list[Message]:
    """Run a trial here, with the platform's answers waiting in the pipe; return all messages that it sent.

    A trainable without a module is one of :mod:`tests.sdk.trial_process.trainables`.
    """
    platform, own = multiprocessing.Pipe()
    for answer in answers:
        platform.send(answer)
    run_trial(
        context(store, attempt),
        trainable if ":" in trainable else f"{TRAINABLES}:{trainable}",
        granted,
        own,
        threads=2,
    )
    own.close()
    heard: list[Message] = []
    while True:
        try:
            heard.append(platform.recv())
        except EOFError:
            return heard


def status(store: Store, attempt: int = 1) -> str:
    return str(json.loads(store.read(f"runs/project=p/s.0001/end-{attempt:04d}.json"))["status"])


def checkpoints(store: Store) -> list[str]:
    return [saved.digest for saved in RunRecords(store, "p", "s.0001").checkpoints()]
