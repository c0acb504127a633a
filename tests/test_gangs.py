"""Gangs of the tests' own begin whatever the test's process has done before, and end whatever a rank does."""

import os
import signal

import pytest
import torch

from halving.distributed.ranks import Ranks
from tests.gangs import RankFailed, run_gang

pytestmark = pytest.mark.slow


def product() -> float:
    """As large as it takes for torch to use all threads."""
    torch.set_num_threads(2)
    return float((torch.ones(600, 600) @ torch.ones(600, 600)).exp().clamp(max=1).sum())


def multiply(ranks: Ranks) -> float:
    return product()


def killed_or_waiting(ranks: Ranks) -> None:
    print(f"said by {ranks.rank}", flush=True)
    ranks.barrier("both have said it")
    if ranks.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def test_ranks_may_use_torchs_threads_where_the_test_has_used_them() -> None:
    assert run_gang(2, multiply) == [product()] * 2


def test_a_rank_that_ends_without_a_word_ends_all_and_what_each_printed_is_shown() -> None:
    with pytest.raises(RankFailed) as raised:
        run_gang(2, killed_or_waiting)
    assert "rank 1 ended with status -9" in str(raised.value)
    assert "rank 0 printed:\nsaid by 0" in str(raised.value)
    assert "rank 1 printed:\nsaid by 1" in str(raised.value)
