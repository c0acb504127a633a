"""Which rank did not come to a collective, from what ranks say of themselves, and the text of it."""

import json

import pytest

from halving.distributed.flight import Collective, Counts, collectives_in, counts_in
from halving.distributed.hang import Hang, describe, find_hang, summary

# As torch 2.13 writes it.
DUMP = {
    "comm_lib_version": "",
    "entries": [
        {
            "collective_seq_id": 7,
            "input_dtypes": ["Float"],
            "input_sizes": [[4]],
            "is_p2p": False,
            "op_id": 7,
            "output_dtypes": ["Float"],
            "output_sizes": [[4]],
            "p2p_seq_id": 0,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:all_reduce",
            "record_id": 3,
            "retired": False,
            "state": "scheduled",
            "thread_id": "140246687538048",
            "thread_name": "python",
            "time_created_ns": 1_795_642_192_631_616_952,
            "time_discovered_completed_ns": 0,
            "time_discovered_started_ns": 0,
            "timeout_ms": 4000,
        }
    ],
    "pg_status": {
        "0": {
            "last_completed_collective": "6",
            "last_enqueued_collective": "7",
            "last_started_collective": "-1",
        },
        "1": {
            "last_completed_collective": "-1",
            "last_enqueued_collective": "-1",
            "last_started_collective": "-1",
        },
    },
    "version": "2.10",
}


def test_the_flight_recorder_says_which_collectives_were_entered() -> None:
    dump = json.dumps(DUMP).encode()
    assert counts_in(dump) == {"0": Counts(7, 6), "1": Counts(0, 0)}
    assert collectives_in(dump) == [
        Collective("0", "gloo:0", "default_pg", 7, "all_reduce", 1795642192.631617, 4.0, over=False)
    ]
    assert counts_in(b"{}") == {}
    assert collectives_in(b"{}") == []


def statement_of(entered: int, since: float = 60.0) -> dict[str, object]:
    return {"entered": {"gloo:0": entered}, "since": {"gloo:0": since}, "stack": f"at {entered}"}


@pytest.mark.parametrize(
    ("testimonies", "waiting", "absent"),
    [
        ({0: statement_of(7), 1: statement_of(6)}, (0,), (1,)),
        ({0: statement_of(6), 1: statement_of(7), 2: statement_of(7)}, (1, 2), (0,)),
        ({0: statement_of(7)}, (0,), (1,)),  # rank 1 does not answer
        # or has never been in that group
        ({0: statement_of(7), 1: {"entered": {}, "since": {}, "stack": "at the begin"}}, (0,), (1,)),
        ({0: statement_of(7), 1: statement_of(7)}, (0, 1), ()),
        ({0: statement_of(7), 1: statement_of(8)}, (0, 1), ()),  # rank 1 is ahead: it has been there
    ],
)
def test_a_rank_that_has_not_entered_the_collective_did_not_come(
    testimonies: dict[int, dict[str, object]], waiting: tuple[int, ...], absent: tuple[int, ...]
) -> None:
    members = range(max(2, len(testimonies)))
    hang = find_hang("run.report()", "gloo:0", 7, 4.0, members, testimonies)
    assert (hang.waiting, hang.absent) == (waiting, absent)
    assert Hang.from_text(hang.to_text()) == hang


def test_the_last_line_says_who_is_absent_from_what_and_since_when_others_wait() -> None:
    hang = Hang("run.report()", 600.0, 60.0, (0, 2), (1,), {0: "at a", 1: None, 2: "at c"})
    assert describe(hang) == (
        "Where each rank was when the collective was given up:\n"
        "  rank 1 (did not come):\n"
        "    it did not answer: it is stopped, or in native code that holds Python's interpreter lock\n"
        "  rank 0 (waited):\n"
        "    at a\n"
        "  rank 2 (waited):\n"
        "    at c\n"
        "rank 1 did not come to run.report() within 600 s (resources.collective_timeout_seconds); "
        "ranks 0 and 2 had waited there since 00:01:00 UTC"
    )
    many = Hang("all_reduce", 4.0, 0.0, tuple(range(1, 64)), (0,), {})
    assert "; ranks 1 to 63 had waited" in summary(many)
    assert "although every rank had entered it" in summary(Hang("all_reduce", 4.0, 0.0, (0, 1), (), {}))


def test_ranks_at_the_same_place_share_a_stack_and_who_did_not_come_is_first() -> None:
    stacks: dict[int, str | None] = dict.fromkeys(range(512), "in all_reduce")
    stacks |= {30: "at work", 33: "at work", 40: None, 41: None}
    absent = (30, 33, 40, 41)
    waiting = tuple(rank for rank in range(512) if rank not in absent)
    text = describe(Hang("all_reduce", 4.0, 0.0, waiting, absent, stacks))
    assert [line.strip() for line in text.splitlines()[1:-1]] == [
        "ranks 30 and 33 (did not come):",
        "at work",
        "ranks 40 and 41 (did not come):",
        "they did not answer: they are stopped, or in native code that holds Python's interpreter lock",
        "ranks 0 to 29, 31, 32, 34 to 39 and 42 to 511 (waited):",
        "in all_reduce",
    ]
    assert "ranks 0, 2, 4, 6, 8, 10, 12 and others, 32 in all had" in summary(
        Hang("x", 4.0, 0.0, tuple(range(0, 64, 2)), (1,), {})
    )
