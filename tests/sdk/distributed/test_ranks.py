"""What reaches one rank alone, and what all of them then hear."""

import pytest

from halving.distributed.ranks import Ranks
from tests.gangs import run_gang

pytestmark = pytest.mark.slow


def flagged_before(ranks: Ranks, call: str) -> list[str]:
    """What rank 0 has heard of a flag on rank 1, which entered another collective first."""
    heard = list[str]()
    if ranks.rank == 1:
        ranks.flag()
    if call == "gather":
        ranks.gather("run.save()", False)
    else:
        ranks.barrier("run.save()")
    for _ in range(2):
        ranks.together("run.epochs()", lambda: None, on_flag=lambda: heard.append("the flag"))
    return heard


@pytest.mark.parametrize("call", ["gather", "barrier"])
def test_a_flag_in_a_collective_without_action_is_heard_once_in_the_next(
    call: str,
) -> None:
    assert run_gang(2, flagged_before, call) == [["the flag"], []]
