"""Pauses between tries grow, differ between callers, and use none of the training's random numbers."""

import itertools
import random
import warnings

import pytest

from halving import Store
from halving.errors import StoreUnavailable
from halving.store.backoff import backoff
from halving.store.retry import retry_while_unavailable


def test_pauses_double_up_to_the_longest_each_within_half_of_it() -> None:
    for _ in range(200):
        for pause, middle in zip(backoff(0.5, 3.0), [0.5, 1.0, 2.0, 3.0, 3.0], strict=False):
            assert 0.5 * middle <= pause <= 1.5 * middle


def test_two_callers_with_one_seed_that_begin_together_retry_at_different_times() -> None:
    random.seed(1)
    first = list(itertools.islice(backoff(), 10))
    random.seed(1)
    before = random.getstate()
    assert not set(first) & set(itertools.islice(backoff(), 10))
    assert random.getstate() == before


def test_a_warning_that_is_an_error_does_not_end_what_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halving.store.retry.backoff", lambda: itertools.repeat(0.0))
    tries: list[int] = []

    def action() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise StoreUnavailable("no answer")
        return "done"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert retry_while_unavailable(store, "a test", action) == "done"


def test_the_user_is_warned_once_and_the_last_error_comes_when_the_time_is_over(store: Store) -> None:
    def action() -> None:
        raise StoreUnavailable("no answer")

    with (
        pytest.warns(UserWarning, match="a test waits for the store .*: no answer") as warned,
        pytest.raises(StoreUnavailable, match="no answer"),
    ):
        retry_while_unavailable(store, "a test", action, longest=1.2)
    assert len(warned) == 1
