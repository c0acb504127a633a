"""The fixtures of a receiver of messages."""

from collections.abc import Iterator

import pytest

from tests.alert_receiver import Receiver, running_receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver
