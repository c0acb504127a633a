"""How a trial's process is started, and why it ended, as its worker sees it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import select

from halving import Store
from halving.errors import InvalidInput
from halving.records.run_record import RunRecords
from resources.backend import Backend
from resources.catalog import TrialRow
from resources.execution.held_gpus import HeldGpus
from resources.execution.machine import local_concurrency, visible_gpus
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import CHECKOUT
from tests.control_groups import control_group
from tests.resources.execution.worked_sweeps import WorkedSweep
from tests.sdk.conftest import IGNORING
from tests.waiting import wait_for, wait_while_running

Spec = Callable[..., SweepSpec]
LIMIT = 512 * 2**20  # bytes

WORKER = """
import sys
from pathlib import Path
Path(sys.argv[1]).write_text("0")  # into the group, before anything is forked
from halving import Store
from resources.scheduling.assignment import Assignment
from resources.execution.local_processes import ForkServer
from resources.sweep_spec.requirements import Resources
from tests.sdk.trial_process.attempts import context
if __name__ == "__main__":
    given = Assignment("s", 1, 1, {}, 0, 0, 9, (9,))
    server = ForkServer(f"tests.deaths:{sys.argv[3]}", Resources(), None)
    process = server.prepare(given, context(Store(sys.argv[2])))
    process.start()
    while process.alive:
        process.receive(1.0)
    print(process.termination().reason)
    process.close()
"""


TELLING = """
import os, sys
print("imported")
from halving import Store
from resources.scheduling.assignment import Assignment
from resources.execution.local_processes import ForkServer
from resources.sweep_spec.requirements import Resources
from tests.sdk.trial_process.attempts import context
if __name__ == "__main__":
    process = ForkServer("tests.deaths:tell_its_environment", Resources(), None).prepare(
        Assignment("s", 1, 1, {}, 0, 0, 9, (9,)), context(Store(sys.argv[1]))
    )
    process.start()
    while (said := process.receive(1.0)) is None:
        pass
    print(said.error)
    print(sorted(os.environ))
    process.close()
"""


WORKING = """
import ctypes, json, sys
import psutil
from halving import Store
from resources.scheduling.assignment import Assignment
from resources.execution.local_processes import ForkServer
from resources.sweep_spec.requirements import Resources
from tests.sdk.trial_process.attempts import context
if __name__ == "__main__":
    ctypes.CDLL(None).prctl(36, 1)  # orphans become its children, as those of a pod's first process do
    trial = context(Store(sys.argv[1]), **json.loads(sys.argv[3]))
    resources = Resources(processes=int(sys.argv[4]))
    server = ForkServer(f"tests.deaths:{sys.argv[2]}", resources, None)
    process = server.prepare(Assignment("s", 1, 1, {}, 0, 0, 9, (9,)), trial)
    process.start()
    while process.alive:
        if (said := process.receive(1.0)) is not None:
            print(said, flush=True)
    process.close()
    print([child.name() for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE])
"""


STOPPED = """
import json, os, signal, sys, threading, time
from resources.backend import Backend
from resources.sweep_spec import parse_spec
from tests.resources.execution.worked_sweeps import WorkedSweep
from tests.sdk.conftest import IGNORING
if __name__ == "__main__":
    ran = WorkedSweep(Backend(root=sys.argv[1]), parse_spec(json.loads(sys.argv[2])))
    def stop():
        while not ran.records(0).checkpoints():
            time.sleep(0.02)
        os.kill(os.getpid(), int(sys.argv[3]))
    threading.Thread(target=stop, daemon=True).start()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ran.work()
    except (SystemExit, KeyboardInterrupt) as raised:
        restored = signal.getsignal(signal.SIGTERM) is before
        print(f"{type(raised).__name__}, handler {'restored' if restored else 'lost'}")
"""


def python(
    tmp_path: Path, source: str, *arguments: str, before: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run Python source in an interpreter of its own, which may import the tests' modules."""
    (tmp_path / "worker.py").write_text(source)
    command = [*before, sys.executable, str(tmp_path / "worker.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'sdk'}"}
    return subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True, timeout=120
    )


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a memory limit."""
    with control_group("memory", {"memory.limit_in_bytes": str(LIMIT)}, {"memory.max": str(LIMIT)}) as group:
        yield group


def termination(group: Path, tmp_path: Path, trainable: str) -> str:
    """How a trial dies whose worker is in a control group."""
    done = python(tmp_path, WORKER, str(group / "cgroup.procs"), str(tmp_path / "root"), trainable)
    return done.stdout.strip()


@pytest.mark.slow
def test_a_trial_that_the_kernel_kills_for_memory_is_said_to_be_with_the_limit(
    group: Path, tmp_path: Path
) -> None:
    reason = termination(group, tmp_path, "take_all_memory")
    assert reason == "the trial's process was killed by SIGKILL: out of memory (the limit is 512Mi)"


@pytest.mark.slow
def test_a_trial_that_somebody_else_kills_is_not(group: Path, tmp_path: Path) -> None:
    assert termination(group, tmp_path, "be_killed") == "the trial's process was killed by SIGKILL"


@pytest.mark.slow
def test_a_trial_sees_no_credential_of_the_database_nor_reruns_its_workers_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("HALVING_CATALOG", "DAGSTER_POSTGRES_URL", "DAGSTER_PG_PASSWORD", "PGPASSWORD", "PGPASSFILE")
    for name in (*names, "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "planted")
    imported, *sent, workers = python(tmp_path, TELLING, str(tmp_path / "root")).stdout.splitlines()
    assert (imported, "imported" in sent) == ("imported", False)
    assert sent[-1].count("'AWS_SECRET_ACCESS_KEY'") == 2, sent
    assert [name for name in names if f"'{name}'" in sent[-1]] == []
    assert [name for name in names if f"'{name}'" not in workers] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "preemptions", "before"),
    [(signal.SIGTERM, 1, ()), (signal.SIGTERM, 1, IGNORING), (signal.SIGINT, 0, ())],
    ids=["SIGTERM", "SIGTERM that it was started to ignore", "Ctrl-C"],
)
def test_a_reclaimed_worker_counts_as_preempted_and_one_stopped_by_its_user_does_not(
    backend: Backend,
    small: Callable[..., dict[str, Any]],
    tmp_path: Path,
    number: signal.Signals,
    preemptions: int,
    before: tuple[str, ...],
) -> None:
    spec = small(trainable="tests.trainables:train_slowly", max_trials=1, strategy={"random": {"budget": 50}})
    ended = python(tmp_path, STOPPED, backend.store.root, json.dumps(spec), str(int(number)), before=before)
    raised = "SystemExit" if number is signal.SIGTERM else "KeyboardInterrupt"
    assert ended.stdout.splitlines()[-1:] == [f"{raised}, handler restored"], ended.stderr
    with backend.catalog.read() as session:
        (row,) = session.scalars(select(TrialRow))
    assert (row.status, row.failures, row.preemptions) == ("queued", 0, preemptions)
    assert ("was ended by SIGTERM" in str(row.error)) is bool(preemptions)
    assert RunRecords(backend.store, "small", f"{row.sweep}.0000").latest_checkpoint() is not None


def works(tmp_path: Path, trainable: str, processes: int = 1, **params: Any) -> "subprocess.Popen[bytes]":
    """A worker with a trial, in a process of its own."""
    (tmp_path / "worker.py").write_text(WORKING)
    arguments = [str(tmp_path / "root"), trainable, json.dumps(params), str(processes)]
    environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'sdk'}"}
    return subprocess.Popen(
        [sys.executable, str(tmp_path / "worker.py"), *arguments], env=environment, stdout=subprocess.PIPE
    )


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Callable[..., tuple["subprocess.Popen[bytes]", psutil.Process]]]:
    """Start a worker, and wait until its trial, or rank 0 of it, has a data loader's processes and hangs."""
    workers: list[subprocess.Popen[bytes]] = []

    def start(how: str, processes: int = 1) -> tuple["subprocess.Popen[bytes]", psutil.Process]:
        worker = works(tmp_path, "hang", processes, how=how)
        workers.append(worker)
        hangs = tmp_path / "root" / "hangs"
        wait_while_running(
            worker, hangs.exists, tmp_path / "worker.py", "the trial to be about to hang", every=0.1
        )
        trial = psutil.Process(int(hangs.read_text()))
        state = psutil.STATUS_STOPPED if how == "stopped" else psutil.STATUS_SLEEPING
        wait_for(lambda: trial.status() == state, 60, "the trial to hang")
        return worker, trial

    yield start
    for worker in workers:
        worker.kill()
        worker.communicate()


Hanging = Callable[..., tuple["subprocess.Popen[bytes]", psutil.Process]]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "holding the interpreter", "sleeping"])
def test_a_trial_and_its_data_loader_never_outlive_their_killed_worker(
    hanging: Hanging, tmp_path: Path, how: str
) -> None:
    worker, trial = hanging(how)
    loaders = trial.children(recursive=True)
    assert len(loaders) == 2, "no fork server of its own, which would outlive it"
    worker.kill()
    _, alive = psutil.wait_procs([trial, *loaders], timeout=60)
    assert not alive
    assert [saved.epoch for saved in RunRecords(Store(tmp_path / "root"), "p", "s.0001").checkpoints()] == [1]


@pytest.mark.slow
def test_no_data_loader_outlives_its_killed_trial(hanging: Hanging) -> None:
    worker, trial = hanging("sleeping")
    loaders = trial.children(recursive=True)
    trial.kill()
    _, alive = psutil.wait_procs(loaders, timeout=60)
    assert not alive
    worker.wait()


@pytest.mark.slow
def test_no_rank_outlives_its_killed_worker_where_the_agent_hangs(hanging: Hanging) -> None:
    worker, rank = hanging("sleeping", processes=2)
    agent = rank.parent()
    assert agent is not None
    gang = [agent, *agent.children(recursive=True)]
    agent.suspend()
    worker.kill()
    _, alive = psutil.wait_procs(gang, timeout=120)
    assert not alive


@pytest.mark.slow
def test_a_trainable_waits_for_none_of_our_children_and_a_worker_keeps_no_zombie(
    tmp_path: Path,
) -> None:
    output, _ = works(tmp_path, "wait_for_all_children").communicate(timeout=120)
    assert b"RuntimeError: all children have ended" in output
    assert output.splitlines()[-1] == b"[]"


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr("resources.execution.machine.usable_cpus", lambda: 8)


def visible(ran: WorkedSweep) -> Any:
    return ran.records(0).read()["provenance"]["hardware"]["visible_gpus"]["CUDA_VISIBLE_DEVICES"]


@pytest.mark.slow
@pytest.mark.usefixtures("gpus")
def test_a_trials_gpus_are_its_own_and_on_record_and_its_worker_still_sees_all(
    backend: Backend, small_spec: Spec
) -> None:
    ran = WorkedSweep(backend, small_spec(max_trials=1, resources={"gpus": 2}))
    sweep = open_sweep(
        backend.catalog,
        small_spec(name="another", resources={"gpus": 2}),
        ran.snapshot.digest,
        driver="job",
        commit=None,
    )
    another = Scheduler(backend.catalog, sweep.id).next_work("w")
    assert isinstance(another, Assignment)
    assert HeldGpus(backend.catalog, visible_gpus()).take(another, 2) == ["0", "1"]
    assert visible(ran.work()) == "2,3"
    assert visible_gpus() == ["0", "1", "2", "3"]


@pytest.mark.slow
@pytest.mark.usefixtures("gpus")
def test_a_worker_in_a_pod_of_its_own_uses_all_gpus_of_the_pod(
    backend: Backend, small_spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster.yaml").write_text("{}")
    monkeypatch.setenv("HALVING_CLUSTER", str(tmp_path / "cluster.yaml"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert visible(WorkedSweep(backend, small_spec(max_trials=1, resources={"gpus": 2})).work()) == "2,3"


def test_a_worker_that_sees_fewer_gpus_than_its_trials_need_takes_none_of_them(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(
        InvalidInput, match=r"resources.gpus = 2 is not accepted here: this machine has 1 for this process"
    ):
        WorkedSweep(backend, small_spec(resources={"gpus": 2}))


def test_an_image_is_refused_where_there_is_no_cluster_before_anything_runs(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(image="registry.example/train:1")
    with pytest.raises(InvalidInput, match=r"image = 'registry\.example/train:1' is not accepted here"):
        local_concurrency(spec)
    with pytest.raises(InvalidInput, match="HALVING_CLUSTER is not set"):
        WorkedSweep(backend, spec)
