"""Of a gang's ranks the one that was the reason says how it ended; after a SIGTERM nobody does."""

from pathlib import Path

import pytest

from halving.records.memory_kills import MemoryKills
from halving.trial.messages import Message, Raised, Stopped
from halving.trial_process.rank_end import RankEnd, find_end

_ENDED = Raised("ValueError: no", final=False, checkpoint=None)
_FINAL = Raised("Diverged: no", final=True, checkpoint=None)


def _crash(text: str) -> Raised:
    return Raised(text, final=False, checkpoint=None)


@pytest.mark.parametrize(
    ("ends", "codes", "has_sigterm", "message"),
    [
        ({0: Stopped(), 1: Stopped()}, {}, False, Stopped()),
        (
            {0: _ENDED},
            {0: 1, 1: 3},
            False,
            _crash("rank 1 of 2 ended with exit code 3 and without a message"),
        ),
        ({0: _ENDED}, {0: 1, 1: -9}, False, _crash("rank 1 of 2 was killed by SIGKILL")),
        ({0: Stopped(), 1: Stopped()}, {0: None, 1: -11}, False, Stopped()),  # it died after all was done
        ({1: Stopped()}, {0: None, 1: -11}, False, _crash("rank 1 of 2 was killed by SIGSEGV")),
        ({0: None, 1: None}, {}, False, None),
        ({1: _ENDED}, {0: -15, 1: 1}, False, None),  # a SIGTERM came to rank 0 before its first epoch
        ({0: _ENDED}, {0: 1, 1: None}, True, None),
        ({0: _FINAL}, {0: 1, 1: None}, True, _FINAL),
    ],
)
def test_how_a_gang_ended_is_said_by_the_rank_that_was_the_reason(
    tmp_path: Path,
    ends: dict[int, Message | None],
    codes: dict[int, int | None],
    has_sigterm: bool,
    message: Message | None,
) -> None:
    for rank, end in ends.items():
        RankEnd(rank, float(rank), end).write(tmp_path)
    assert find_end(tmp_path, codes, None, MemoryKills(), has_sigterm=has_sigterm) == message
