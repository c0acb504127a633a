"""A trial in several processes: its ranks take every decision together, and end together, whatever becomes of
one of them.
"""

import json
import secrets
import signal
import time
from pathlib import Path

import psutil
import pytest

from halving import Store
from halving.checkpoints.restoring import saved_state
from halving.records.run_record import RunRecords
from halving.trial.messages import Raised, ReachedRung, Stopped
from tests.gangs import start
from tests.s3 import S3, Gate
from tests.sdk.metric_files import read_points
from tests.sdk.trial_process.attempts import status
from tests.sdk.trial_process.gang_trainables import STEPS
from tests.sdk.trial_process.gangs import Gang
from tests.waiting import wait_for

_HANGING = {"stop": psutil.STATUS_STOPPED, "hold the interpreter": psutil.STATUS_SLEEPING}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def notes(store: Store, rank: int, kind: str) -> list[str]:
    lines = Path(store.root, f"notes.{rank}").read_text().splitlines()
    return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(kind)]


def steps(store: Store, rank: int) -> list[tuple[int, int]]:
    """``(epoch, step)`` of each step that a rank has trained, in their order."""
    return [(int(epoch), int(step)) for epoch, step, _ in map(str.split, notes(store, rank, "step"))]


@pytest.mark.slow
def test_all_ranks_train_what_rank_0_is_granted_and_take_its_reports(store: Store) -> None:
    first, second, end = Gang(store).messages(5)
    assert isinstance(first, ReachedRung)
    assert isinstance(second, ReachedRung)
    assert ((first.epoch, first.values), (second.epoch, second.values)) == (
        (3, {"score": 3.0}),
        (5, {"score": 5.0}),
    )
    assert end == Stopped()
    assert (
        notes(store, 0, "epoch")
        == notes(store, 1, "epoch")
        == [f"{epoch} {float(epoch)}" for epoch in range(1, 6)]
    )
    ended = json.loads(store.read("runs/project=p/s.0001/end-0001.json"))
    assert (ended["status"], ended["epoch"], ended["summary"]["score"]) == ("finished", 5, 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("trouble", "said"),
    [("raise", "ValueError: too much for {rank}"), ("kill", "rank {rank} of 2 was killed by SIGKILL")],
)
def test_a_rank_that_ends_wrongly_ends_all_and_the_next_attempt_goes_on(
    store: Store, trouble: str, said: str, rank: int
) -> None:
    *_, raised = Gang(store, trouble=trouble, ranks=[rank]).messages()
    assert isinstance(raised, Raised)
    assert not raised.final
    assert said.format(rank=rank) in raised.error
    assert (
        raised.error.startswith(("Traceback", "rank 0 of"))
        if rank == 0
        else raised.error.startswith("rank 1")
    )
    assert Gang(store, attempt=2, trouble=trouble, ranks=[rank]).messages()[-1] == Stopped()
    trained = steps(store, 0)
    assert trained.count((1, 1)) == 1  # the first epoch was saved
    assert trained[-STEPS:] == [(3, step) for step in range(1, STEPS + 1)]


@pytest.mark.slow
def test_what_rank_0_is_told_is_raised_on_all_ranks_and_said_once(store: Store) -> None:
    (raised,) = Gang(store, trouble="diverge", ranks=[0, 1]).messages()
    assert isinstance(raised, Raised)
    assert raised.final
    assert raised.error.startswith("Traceback")  # rank 0's own
    assert "objective 'score'" in raised.error


@pytest.mark.slow
def test_ranks_that_call_different_things_are_told_so(store: Store) -> None:
    (raised,) = Gang(store, trouble="report", ranks=[1]).messages()
    assert isinstance(raised, Raised)
    assert raised.final
    assert "rank 1 has called run.report() where rank 0 has called" in raised.error


@pytest.mark.slow
@pytest.mark.parametrize(("trouble", "rank"), [("terminate", 0), ("terminate", 1), ("ask back", 0)])
def test_a_sigterm_to_one_rank_ends_all_at_one_step_and_no_step_is_trained_again(
    store: Store, trouble: str, rank: int
) -> None:
    first = Gang(store, trouble=trouble, ranks=[rank])
    assert first.messages() == []
    assert first.process.exitcode == 128 + signal.SIGTERM
    assert status(store) == "terminated"
    assert steps(store, 0) == steps(store, 1)
    assert Gang(store, attempt=2, trouble=trouble, ranks=[rank]).messages()[-1] == Stopped()
    assert (
        steps(store, 0)
        == steps(store, 1)
        == [(epoch, step) for epoch in range(1, 4) for step in range(1, STEPS + 1)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["kill the agent", "wait"])
def test_no_rank_outlives_its_agent_or_its_worker(store: Store, trouble: str) -> None:
    worker = start(_work, store.root, trouble)
    while trouble == "wait" and not Path(store.root, "notes.1").exists():
        worker.join(0.05)
    if trouble == "wait":
        while (2, 2) not in steps(store, 1):
            worker.join(0.05)
        worker.kill()
    worker.join()
    pids = {int(line.split()[-1]) for rank in (0, 1) for line in notes(store, rank, "step")}
    assert len(pids) == 2
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=60)
    assert not alive


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["stop", "hold the interpreter"])
def test_rank_0_does_not_outlive_its_agent_wherever_it_hangs(store: Store, trouble: str) -> None:
    gang = Gang(store, trouble=trouble, ranks=[0])
    hangs = Path(store.root, "hangs")
    wait_for(hangs.exists, 60, "rank 0 to be about to hang")
    rank = psutil.Process(int(notes(store, 0, "step")[-1].split()[-1]))
    wait_for(lambda: rank.status() == _HANGING[trouble], 60, "rank 0 to hang")
    (guardian,) = (
        each for each in psutil.Process(gang.process.pid).children() if "guardian" in " ".join(each.cmdline())
    )
    gang.process.kill()
    _, alive = psutil.wait_procs([rank, guardian], timeout=60)
    assert not alive
    assert Gang(store, attempt=2, trouble=trouble, ranks=[0]).messages()[-1] == Stopped()


def _work(root: str, trouble: str) -> None:
    Gang(Store(root), trouble=trouble, ranks=[1]).messages()


@pytest.mark.slow
def test_an_epoch_in_which_all_ranks_leave_the_loop_counts(store: Store) -> None:
    (returned,) = Gang(store, "leave_early").messages()
    assert getattr(returned, "epoch", None) == 2
    saved = RunRecords(store, "p", "s.0001").latest_checkpoint()
    assert saved is not None
    assert saved.epoch == 2
    assert json.loads(store.read("runs/project=p/s.0001/end-0001.json"))["epoch"] == 2


@pytest.mark.slow
def test_a_gang_whose_ranks_leave_without_a_word_has_crashed(store: Store) -> None:
    (raised,) = Gang(store, trouble="exit", ranks=[0, 1]).messages()
    assert isinstance(raised, Raised)
    assert not raised.final
    assert "ended with exit code 0 and without a message" in raised.error


@pytest.mark.slow
def test_a_gang_on_s3_goes_on_while_it_is_away_and_waits_for_it_at_a_rung(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    gate = Gate(("127.0.0.1", s3.port))
    store = Store(s3.root(secrets.token_hex(6), endpoint=gate.endpoint))
    gang = Gang(store, "train_weights", signs=str(tmp_path))

    def meet(epoch: int) -> None:
        while not all((tmp_path / f"{epoch}.{rank}").exists() for rank in (0, 1)):
            assert gang.process.is_alive()
            time.sleep(0.02)

    meet(2)
    gate.shut()
    (tmp_path / "2.go").touch()
    meet(3)
    gate.open()  # what is shut swallows nothing
    gate.swallow()
    before = gate.connections
    (tmp_path / "3.go").touch()
    while gate.connections == before:
        assert gang.process.is_alive()
        time.sleep(0.02)
    gate.open()
    assert [type(message) for message in gang.messages()] == [ReachedRung, Stopped]
    saved = RunRecords(store, "p", "s.0001").checkpoints()
    assert [checkpoint.epoch for checkpoint in saved] == [1, 3]
    weights = [saved_state(store, checkpoint.digest)["model"]["weight"] for checkpoint in saved]
    assert float((weights[1] - weights[0] - 2).abs().max()) < 1e-5


@pytest.mark.slow
def test_an_attempt_whose_rank_is_killed_ends_without_s3_and_the_next_has_all_points(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    gate = Gate(("127.0.0.1", s3.port))
    store = Store(s3.root(secrets.token_hex(6), endpoint=gate.endpoint))
    gang = Gang(store, "train_until_killed", signs=str(tmp_path))
    wait_for(
        lambda: all((tmp_path / f"logged {rank}").exists() for rank in (0, 1)),
        120,
        "both ranks have logged",
        every=0.02,
    )
    wait_for(
        RunRecords(store, "p", "s.0001").latest_checkpoint,
        60,
        "the first epoch's checkpoint, which is written meanwhile",
    )
    gate.swallow()
    (tmp_path / "go").touch()
    (raised,) = gang.messages()  # S3 is away until this is there
    gate.open()
    again = Gang(store, "train_until_killed", attempt=2, signs=str(tmp_path))
    wait_for((tmp_path / "attempt 2, epoch 2, rank 0").exists, 60, "the next step", every=0.02)
    assert [type(message) for message in again.messages()] == [ReachedRung, Stopped]
    assert isinstance(raised, Raised)
    assert "rank 1 of 2 was killed by SIGKILL" in raised.error
    points = {(attempt, step) for attempt, key, step, *_ in read_points(store, "s.0001") if key == "a"}
    assert points == {(1, step) for epoch in (1, 2) for step in range(10 * epoch, 10 * epoch + 3)} | {
        (2, step) for epoch in (2, 3) for step in range(10 * epoch, 10 * epoch + 3)
    }
