"""A verdict is on what both runs have, and says what it is not on."""

from typing import Any

import pytest

from halving import Store
from halving.query.runs import RunInfo, read_run
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.rerun.verdict import expected_ends, judge_rerun
from tests.sdk.run.runs import start


def run_of(
    store: Store,
    name: str,
    losses: list[float],
    *,
    status: str = "finished",
    weights: dict[int, str | None] | None = None,
) -> RunInfo:
    """A trial's run, of a loss at each step from 1, and checkpoints with these digests of weights."""
    run = start(store, run_id=name, parent={"trial": 0})
    for step, loss in enumerate(losses, start=1):
        run.log({"loss": loss}, step=step)
    run.finish(status)
    records = RunRecords(store, "p", name)
    for epoch, digest in (weights or {}).items():
        records.add_checkpoint(SavedCheckpoint(epoch, 1, f"sha256:{epoch}", {}, None, digest))
    return read_run(store, "p", name)


@pytest.mark.parametrize("status", ["failed", "terminated", "crashed"])
def test_a_trial_that_ended_after_its_newest_checkpoint_is_compared_up_to_it(
    store: Store, status: str
) -> None:
    recorded = run_of(store, "r", [0.3, 0.2, float("nan")], status=status, weights={2: "a"})
    verdict = judge_rerun(store, recorded, run_of(store, "n", [0.3, 0.2], weights={2: "a"}), ())
    assert (verdict.verdict, verdict.points, verdict.weights_equal) == ("identical", 2, True)
    assert verdict.not_compared == [
        f"1 metric points that the trial logged after its newest checkpoint, before it ended as {status}",
    ]
    assert (
        judge_rerun(store, recorded, run_of(store, "m", [0.3, 0.1], weights={2: "a"}), ()).verdict
        == "differs"
    )


def test_a_finished_trial_is_compared_whole(store: Store) -> None:
    verdict = judge_rerun(store, run_of(store, "r", [0.3, 0.2, 0.1]), run_of(store, "n", [0.3, 0.2]), ())
    assert (verdict.verdict, verdict.not_compared) == ("differs", ["weights: run.save saved none"])
    assert verdict.first_difference is not None
    assert (verdict.first_difference.step, verdict.first_difference.rerun) == (3, None)


@pytest.mark.parametrize(
    ("recorded", "rerun", "equal", "said"),
    [
        ({1: "a"}, {1: "a"}, True, []),
        ({1: "a"}, {1: "b"}, False, []),
        ({1: None}, {1: "b"}, None, ["weights: the checkpoint's record has no digest of them"]),
        ({1: "a"}, {1: None}, None, ["weights: the checkpoint's record has no digest of them"]),
        ({1: "a"}, {}, False, []),
        (
            {1: "a", 3: "c"},
            {1: "a", 2: "x"},
            True,
            ["weights after epoch 1: only until there both have checkpoints"],
        ),
        (
            {3: "c"},
            {2: "x"},
            None,
            ["weights: the two have no checkpoint of the same epoch (3 is the recorded run's newest)"],
        ),
    ],
)
def test_weights_are_compared_at_equal_epochs_or_said_not_to_be(
    store: Store,
    recorded: dict[int, str | None],
    rerun: dict[int, str | None],
    equal: bool | None,
    said: list[str],
) -> None:
    verdict = judge_rerun(
        store, run_of(store, "r", [1.0], weights=recorded), run_of(store, "n", [1.0], weights=rerun), ()
    )
    assert (verdict.weights_equal, verdict.not_compared) == (equal, said)
    assert verdict.verdict == ("differs" if equal is False else "identical")
    assert verdict.as_dict()["weights"]["equal"] is equal


def test_artifacts_are_named_as_not_compared(store: Store) -> None:
    recorded = run_of(store, "r", [1.0], weights={1: "a"})
    RunRecords(store, "p", "r").add_artifact("model.ckpt", "sha256:1", 3)
    assert judge_rerun(store, recorded, run_of(store, "n", [1.0], weights={1: "a"}), ()).not_compared == [
        "1 artifacts"
    ]


def test_what_may_help_is_said_only_of_two_runs_that_came_to_their_end(store: Store) -> None:
    def is_unexplained(status: str) -> Any:
        return judge_rerun(
            store, run_of(store, f"r-{status}", [1.0], status=status), run_of(store, f"n-{status}", [2.0]), ()
        ).unexplained

    assert [is_unexplained(status) for status in ("finished", "failed", "crashed")] == [True, False, False]


@pytest.mark.parametrize(
    ("status", "trial", "expected"),
    [
        ("finished", False, ("finished",)),
        ("failed", False, ("failed",)),
        ("crashed", False, ("finished", "failed")),
        ("paused", True, ("finished",)),
        ("failed", True, ("finished",)),
        ("early", False, ("early",)),
    ],
)
def test_a_rerun_has_to_end_as_the_recorded_run_did(
    status: str, trial: bool, expected: tuple[str, ...]
) -> None:
    assert expected_ends(status, trial=trial) == expected
