"""``python -m halving.trial_process.pod`` as a pod runs it: a process that knows a store and a mailbox, and
nothing else.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.records.run_record import RunRecords
from halving.trial.mailbox import Mailbox, mail_folder, post_task
from halving.trial.messages import Granted, Interrupted, Message, Raised, ReachedRung, Stopped
from halving.trial_process import pod as trial_pod
from halving.trial_process.pod import MailChannel, Task
from tests.s3 import S3, Gate
from tests.sdk.conftest import IGNORING
from tests.sdk.trial_process.attempts import context, status
from tests.waiting import wait_for

SDK = Path(__file__).parents[3] / "sdk"
FOLDER = mail_folder("p", "s.0001", 1)

TRAINABLE = """
import pathlib, time


def train(run):
    for epoch in run.epochs():
        run.report(score=epoch / 10)
        run.save(seen=[epoch])


def train_until_stopped(run):
    for epoch in run.epochs():
        print("epoch", epoch, flush=True)
        while not pathlib.Path("stopped").exists():
            time.sleep(0.01)
        run.report(score=epoch / 10)
        run.save(seen=[epoch])


def train_until_asked_back(run):
    for epoch in run.epochs():
        while epoch == 2 and not run.stopping:
            time.sleep(0.01)
        run.report(score=epoch / 10)
        run.save(seen=[epoch])


def need_a_package(run):
    import nowhere
"""


class Pod:
    """A process in a folder with a trainable, as a pod of an image would be."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        task: Task | None,
        *,
        before: tuple[str, ...] = (),
        program: str = "",
    ) -> None:
        (folder / "in_image.py").write_text(TRAINABLE)
        if task is not None:
            post_task(store, FOLDER, task.to_bytes())
        self.mailbox = Mailbox(store, FOLDER, sends="worker", reads="trial")
        # Nothing of this process's environment: what the program needs is in the SDK.
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SDK),
            "HALVING_ROOT": store.root,
            "HALVING_MAILBOX": FOLDER,
        }
        self.process = subprocess.Popen(
            [*before, sys.executable, *(["-c", program] if program else ["-m", "halving.trial_process.pod"])],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> Message | Granted | None:
        return self.mailbox.receive(60.0)

    def wait_for_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it printed on stderr."""
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


Start = Callable[..., Pod]


@pytest.fixture
def start(store: Store, tmp_path: Path) -> Iterator[Start]:
    pods: list[Pod] = []

    def start(trainable: str = "train", *, granted: int = 1, **settings: Any) -> Pod:
        task = Task(
            context(store), trainable if ":" in trainable else f"in_image:{trainable}", granted, threads=1
        )
        pods.append(Pod(store, tmp_path, settings.pop("task", task), **settings))
        return pods[-1]

    yield start
    for pod in pods:
        pod.process.kill()
        pod.process.communicate()


@pytest.mark.slow
def test_a_trial_asks_at_each_rung_and_says_when_it_is_over(start: Start, store: Store) -> None:
    pod = start()
    first = pod.hear()
    pod.mailbox.send(Granted(3, complete=False))
    second = pod.hear()
    pod.mailbox.send(Granted(3, complete=True))
    assert pod.hear() == Stopped()
    assert [(rung.epoch, rung.values) for rung in (first, second) if isinstance(rung, ReachedRung)] == [
        (1, {"score": 0.1}),
        (3, {"score": 0.3}),
    ]
    assert pod.end()[0] == 0
    assert status(store) == "finished"


@pytest.mark.slow
def test_the_record_says_what_the_image_is_and_has(start: Start, store: Store) -> None:
    described = replace(
        context(store), provenance={"image": "registry.example/train:1"}, divergence={"score": (None, 5.0)}
    )
    pod = start(task=Task(described, "in_image:train", 1, threads=1))
    assert isinstance(pod.hear(), ReachedRung)
    record = RunRecords(store, "p", "s.0001").read()
    provenance = record["provenance"]
    assert provenance["image"] == "registry.example/train:1"
    assert len(record["parent"]["trainable_sha256"]) == 64, (
        "what the gate for promotion asks for, where an image has no git"
    )
    assert provenance["command"][1].endswith("pod.py")


@pytest.mark.slow
@pytest.mark.parametrize("before", [(), IGNORING], ids=["", "started to ignore it"])
def test_a_sigterm_in_mid_epoch_saves_a_checkpoint_says_so_and_ends_with_143(
    start: Start, store: Store, before: tuple[str, ...]
) -> None:
    pod = start("train_until_stopped", granted=100, before=before)
    assert pod.wait_for_line() == "epoch 1\n"
    pod.process.send_signal(signal.SIGTERM)
    Path("stopped").touch()
    said = pod.hear()
    assert isinstance(said, Interrupted)
    assert "received SIGTERM and saved a checkpoint" in said.reason
    assert pod.end()[0] == 143
    assert [saved.epoch for saved in RunRecords(store, "p", "s.0001").checkpoints()] == [1]
    assert status(store) == "terminated"


@pytest.mark.slow
def test_a_trial_that_is_asked_back_saves_its_epoch_and_ends_with_143(start: Start, store: Store) -> None:
    program = "from halving.trial_process import pod; pod._ASKED_BACK_LOOK_SECONDS = 0.1; pod.main()"
    pod = start("train_until_asked_back", granted=100, program=program)
    wait_for(RunRecords(store, "p", "s.0001").checkpoints, 60, "the first epoch")
    pod.mailbox.ask_back()
    assert isinstance(pod.hear(), Interrupted)
    assert pod.end()[0] == 143
    assert [saved.epoch for saved in RunRecords(store, "p", "s.0001").checkpoints()] == [1, 2]
    assert status(store) == "terminated"


@pytest.mark.filterwarnings("ignore:halving.*waits for the store:UserWarning")
def test_a_trial_hears_that_it_is_asked_back_once_its_store_is_there_again(
    s3: S3, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trial_pod, "_ASKED_BACK_LOOK_SECONDS", 0.05)
    gate = Gate((s3.host, s3.port))
    prefix = secrets.token_hex(6)
    heard = threading.Event()
    trial = Mailbox(Store(s3.root(prefix, endpoint=gate.endpoint)), FOLDER, sends="trial", reads="worker")
    with MailChannel(trial).heeding(heard.set):
        with gate.outage():
            Mailbox(Store(s3.root(prefix)), FOLDER, sends="worker", reads="trial").ask_back()
            wait_for(
                lambda: "cannot look whether the trial is asked back" in caplog.text, 60, "a look that fails"
            )
            assert not heard.is_set()
        assert heard.wait(60)
    gate.shut()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="needs unshare, as root")
def test_the_first_process_of_a_container_ends_by_sigterm_while_it_waits_at_its_rung(
    start: Start, store: Store
) -> None:
    pod = start(before=("unshare", "--pid", "--fork", "--kill-child"))
    assert isinstance(pod.hear(), ReachedRung)
    (first,) = Path(f"/proc/{pod.process.pid}/task/{pod.process.pid}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    assert pod.end()[0] == 143
    assert status(store) == "terminated"


@pytest.mark.slow
def test_a_trial_that_nobody_answers_ends_itself_at_its_rung(start: Start, store: Store) -> None:
    pod = start(program="from halving.trial_process import pod; pod._UNANSWERED_SECONDS = 1.0; pod.main()")
    assert isinstance(pod.hear(), ReachedRung)
    assert pod.hear() == Interrupted("the trial's worker gave no answer within 1 s")
    assert pod.end()[0] == -signal.SIGTERM
    assert status(store) == "terminated"
    assert len(RunRecords(store, "p", "s.0001").checkpoints()) == 1


@pytest.mark.slow
def test_a_killed_trial_leaves_what_it_said_and_the_next_attempt_goes_on(
    start: Start, store: Store, tmp_path: Path
) -> None:
    pod = start(granted=2)
    rung = pod.hear()
    assert isinstance(rung, ReachedRung)
    pod.process.kill()
    assert pod.end()[0] == -signal.SIGKILL
    assert pod.mailbox.receive(0.0) is None
    assert RunRecords(store, "p", "s.0001").latest_checkpoint().digest == rung.checkpoint  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_worker_that_was_killed_is_waited_for_by_the_trial(start: Start) -> None:
    pod = start()
    assert isinstance(pod.hear(), ReachedRung)
    time.sleep(1.5)  # the trial looks once a second by now
    assert pod.process.poll() is None
    # a worker that knows nothing of before
    pod.mailbox = Mailbox(pod.mailbox._store, FOLDER, sends="worker", reads="trial")
    assert isinstance(pod.hear(), ReachedRung)
    pod.mailbox.send(Granted(1, complete=False))
    assert pod.hear() == Stopped()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainable", "final", "said"),
    [
        ("nowhere:train", True, "trainable = 'nowhere:train' is not accepted: there is no module 'nowhere'"),
        ("in_image:nothing", True, "in_image has no function 'nothing'"),
        ("in_image:need_a_package", False, "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_what_the_image_lacks_is_said(start: Start, trainable: str, final: bool, said: str) -> None:
    raised = start(trainable).hear()
    assert isinstance(raised, Raised)
    assert raised.final is final
    assert said in raised.error


@pytest.mark.slow
def test_an_sdk_of_another_version_says_so(start: Start, store: Store) -> None:
    store.create(
        f"{FOLDER}/task.json",
        json.dumps({"context": {"objectives": [], "bounded": [], "divergence": {}, "new": 1}}).encode(),
    )
    pod = start(task=None)
    raised = pod.hear()
    assert isinstance(raised, Raised)
    assert raised.final
    assert "the trial's task is not accepted by the halving SDK of this image" in raised.error
    assert "install the SDK of the platform's version in it" in raised.error
    assert pod.end()[0] == 1


@pytest.mark.slow
def test_it_says_who_starts_it(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SDK)}
    done = subprocess.run(
        [sys.executable, "-m", "halving.trial_process.pod"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "HALVING_MAILBOX is not set: this program is started in a trial's pod" in done.stderr
