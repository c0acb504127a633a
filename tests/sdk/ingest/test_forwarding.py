"""Points of a gang's other ranks on their way to rank 0, through a real store of torch."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from halving.ingest.forwarding import Forwarded, ForwardingWriter, of_rank
from halving.ingest.validation import Validator


class Logged:
    def __init__(self, wanted: int) -> None:
        self.calls: list[tuple[int, dict[str, float]]] = []
        self.complete = threading.Event()
        self._wanted = wanted

    def __call__(self, values: Mapping[str, float], *, step: int) -> None:
        self.calls.append((step, dict(values)))
        if len(self.calls) == self._wanted:
            self.complete.set()


@pytest.fixture
def store() -> Any:
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_a_ranks_values_are_named_by_its_number_also_in_dicts() -> None:
    assert of_rank({"loss": 1, "grad": {"norm": 2, "of": {"bias": 3}}}, 3) == {
        "loss/rank.3": 1,
        "grad": {"norm/rank.3": 2, "of": {"bias/rank.3": 3}},
    }


def test_what_a_rank_appends_rank_0_logs_in_its_order_and_the_fast_way_keeps_nothing(store: Any) -> None:
    import torch

    logged = Logged(3)
    writer = ForwardingWriter(store.clone())
    forwarded = Forwarded(store.clone(), logged)
    validator = Validator(writer, "r", strict=False)  # type: ignore[arg-type]  # as a rank's run uses it
    assert writer.appender.fast({"plain": 1.0}, 0)
    validator.take({"a": 1, "b": {"c": torch.tensor(2.5)}}, 1)
    validator.take({"a": float("nan")}, 2)
    validator.take({"a": float("inf")}, 3)
    writer.close(1.0)
    assert logged.complete.wait(30)
    forwarded.close()
    assert [step for step, _ in logged.calls] == [1, 2, 3]
    assert logged.calls[0][1] == {"a": 1.0, "b/c": 2.5}
    assert str([values for _, values in logged.calls[1:]]) == "[{'a': nan}, {'a': inf}]"


def test_rank_0_logs_at_its_end_what_came_since_it_last_looked(store: Any) -> None:
    logged = Logged(1)
    forwarded = Forwarded(store.clone(), logged)
    writer = ForwardingWriter(store.clone())
    writer.append({"a": 1.0}, 5, writer.now())
    assert writer.flush()
    forwarded.close()
    assert logged.calls == [(5, {"a": 1.0})]
    writer.close(1.0)


def test_what_a_store_that_is_gone_does_not_take_is_counted_and_training_goes_on() -> None:
    class Gone:
        def queue_push(self, *_: Any) -> None:
            raise RuntimeError("connection reset")

    writer = ForwardingWriter(Gone())  # type: ignore[arg-type]
    writer.append({"a": 1.0}, 1, writer.now())
    assert not writer.flush()
    with pytest.warns(UserWarning, match="1 calls of log"):
        writer.close(1.0)
