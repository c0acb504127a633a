"""Messages as JSON, and the mailbox: what is said arrives once and in order, whoever dies."""

import json
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import Store
from halving.errors import AlreadyExists, InvalidInput
from halving.trial.messages import (
    Granted,
    Interrupted,
    Raised,
    ReachedRung,
    ReturnedEarly,
    Stopped,
    from_bytes,
    to_bytes,
)
from tests.s3 import S3, Gate
from tests.sdk.trial.mailboxes import FOLDER, ends
from tests.waiting import wait_for

CHECKOUT = Path(__file__).parents[3]

counts = st.integers(0, 2**31 - 1)
digests = st.text("0123456789abcdef", min_size=64, max_size=64).map(lambda hexes: f"sha256:{hexes}")
values = st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False))
maybe_digests = st.none() | digests
messages = st.one_of(
    st.builds(ReachedRung, counts, values, digests, maybe_digests),
    st.builds(ReturnedEarly, counts, values, digests, maybe_digests),
    st.builds(Raised, st.text(), st.booleans(), maybe_digests),
    st.builds(Interrupted, st.text()),
    st.builds(Granted, counts, st.booleans()),
    st.just(Stopped()),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(messages)
def test_a_message_is_the_same_on_the_other_side(message: Any) -> None:
    assert from_bytes(to_bytes(message)) == message


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_whatever_else_comes_is_refused_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        from_bytes(data)


@given(messages, st.data())
def test_a_message_with_one_field_changed_is_refused_or_another_message_of_its_kind(
    message: Any, data: st.DataObject
) -> None:
    said = json.loads(to_bytes(message))
    name = data.draw(st.sampled_from(sorted(said)))
    said[name] = data.draw(json_values)
    with suppress(InvalidInput):
        assert json.loads(to_bytes(from_bytes(json.dumps(said).encode()))) == said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04N.", "give JSON"),
        (b'{"kind": "Pickle"}', "give an object whose kind is one of"),
        (
            b'{"kind": "Granted", "epochs": 3}',
            "a message Granted with ['epochs'] is not accepted: give ['complete', 'epochs']",
        ),
        (b'{"kind": "Granted", "epochs": -3, "complete": false}', "Granted.epochs = -3 is not accepted"),
        (b'{"kind": "Granted", "epochs": true, "complete": false}', "Granted.epochs = True is not accepted"),
        (
            (
                b'{"kind": "ReachedRung", "epoch": 1, "values": {"score": NaN}, '
                b'"checkpoint": "x", "best_checkpoint": null}'
            ),
            "ReachedRung.values = {'score': nan} is not accepted",
        ),
        (
            b'{"kind": "Granted", "epochs": 2147483648, "complete": false}',
            "Granted.epochs = 2147483648 is not accepted",
        ),
        (
            b'{"kind": "ReachedRung", "epoch": 1, "values": {"score": 1%s}, '
            b'"checkpoint": "x", "best_checkpoint": null}' % (b"0" * 400),
            "ReachedRung.values = {'score': 1000",
        ),
        (
            (
                b'{"kind": "ReachedRung", "epoch": 1, "values": {}, '
                b'"checkpoint": "../../etc", "best_checkpoint": null}'
            ),
            "digest '../../etc' is not accepted",
        ),
    ],
)
def test_what_is_not_accepted_is_named(content: bytes, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        from_bytes(content)
    assert message in str(refused.value)


def test_each_end_hears_what_the_other_says_in_order_and_once(any_store: Store) -> None:
    trial, worker = ends(any_store)
    for epoch in (1, 2):
        trial.send(Raised(str(epoch), final=False, checkpoint=None))
    assert [worker.receive(0.0), worker.receive(0.0), worker.receive(0.0)] == [
        Raised("1", False, None),
        Raised("2", False, None),
        None,
    ]
    worker.send(Granted(3, complete=False))
    assert trial.receive(0.0) == Granted(3, complete=False)
    assert trial.receive(0.0) is None


def test_an_end_that_is_made_again_finds_what_was_said(any_store: Store) -> None:
    ends(any_store)[0].send(Stopped())
    assert ends(any_store)[1].receive(0.0) == Stopped()


def test_nobody_else_speaks_for_an_end(any_store: Store) -> None:
    ends(any_store)[0].send(Stopped())
    with pytest.raises(AlreadyExists):
        ends(any_store)[0].send(Interrupted("another"))


def test_a_trial_is_asked_back_beside_the_messages_however_often_and_by_whomever(
    any_store: Store,
) -> None:
    trial, worker = ends(any_store)
    assert not trial.is_asked_back()
    for _ in range(2):
        worker.ask_back()
        ends(any_store)[1].ask_back()
    worker.send(Granted(3, complete=False))
    assert trial.is_asked_back()
    assert [trial.receive(0.0), trial.receive(0.0)] == [Granted(3, complete=False), None]
    worker.clear()
    assert any_store.names(FOLDER) == []


def test_whatever_a_trial_has_written_there_it_is_asked_back(store: Store) -> None:
    trial, worker = ends(store)
    store.create(f"{FOLDER}/asked-back.json", b"something else")
    worker.ask_back()
    assert trial.is_asked_back()


@pytest.mark.filterwarnings("ignore:halving.*waits for the store:UserWarning")
def test_an_unavailable_store_is_waited_for(s3: S3) -> None:
    gate = Gate((s3.host, s3.port))
    trial, worker = ends(Store(s3.root(secrets.token_hex(6), endpoint=gate.endpoint)))
    gate.shut()
    threading.Timer(1.0, gate.open).start()
    assert worker.receive(0.1) is None
    trial.send(Stopped())
    assert worker.receive(20.0) == Stopped()
    gate.shut()


def test_what_was_said_can_be_cleared_away(any_store: Store) -> None:
    trial, worker = ends(any_store)
    trial.send(Stopped())
    worker.clear()
    assert any_store.names(FOLDER) == []


def answer_always(root: str) -> None:
    _, worker = ends(Store(root))
    while True:
        if isinstance(message := worker.receive(1.0), ReachedRung):
            worker.send(Granted(message.epoch + 1, complete=False))


ASK = """
import sys
from halving import Store
from halving.trial.messages import ReachedRung
from tests.sdk.trial.mailboxes import ends
trial, _ = ends(Store(sys.argv[1]))
for epoch in range(1, 10_000):
    trial.send(ReachedRung(epoch, {"score": 0.5}, "sha256:" + "0" * 64))
    print(trial.receive(60.0).epochs, flush=True)
"""


def nothing_more_is_said(store: Store, killed: str) -> bool:
    """Whether the end that survives has read all and waits: it answers each message, the trial also asks once
    more than it is answered.
    """
    senders = Counter(name.partition("-")[0] for name in store.names(FOLDER))
    return senders["trial"] - senders["worker"] == (0 if killed == "trial" else 1)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["trial", "worker"])
def test_a_kill_of_either_end_loses_nothing_that_was_said(store: Store, killed: str) -> None:
    worker = multiprocessing.get_context("spawn").Process(
        target=answer_always, args=(store.root,), daemon=True
    )
    worker.start()
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        [sys.executable, "-c", ASK, store.root], env=environment, stdout=subprocess.PIPE, text=True
    ) as trial:
        assert trial.stdout is not None
        heard = [int(trial.stdout.readline()) for _ in range(5)]
        os.kill(trial.pid if killed == "trial" else int(worker.pid or 0), signal.SIGKILL)
        wait_for(partial(nothing_more_is_said, store, killed), 60, "the survivor's last message")
        trial.kill()
    worker.kill()
    worker.join()
    assert heard == [2, 3, 4, 5, 6]
    ours, theirs = ends(store)  # as a process that looks at it afterwards
    said = list(iter(lambda: theirs.receive(0.0), None))
    answered = list(iter(lambda: ours.receive(0.0), None))
    assert [message.epoch for message in said if isinstance(message, ReachedRung)] == list(
        range(1, len(said) + 1)
    )
    assert answered == [Granted(epoch + 1, complete=False) for epoch in range(1, len(answered) + 1)]
    assert len(said) - 1 <= len(answered) <= len(said)
