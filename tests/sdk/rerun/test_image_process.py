"""The process in a pod that trains a trial again."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from halving import Store
from halving.query.runs import read_run
from halving.records import provenance
from halving.rerun import rerun as rerun_module
from halving.rerun.attribution import read_kept, run_experiment
from halving.rerun.experiment import ALL, Planned, last_value, plan_experiment
from halving.rerun.kept_reruns import KeptReruns
from halving.rerun.plan import plan_of
from halving.rerun.pods import COMMAND, PodRerun
from halving.rerun.rerun import Options, RerunFailed, RerunRefused, train_in_pod
from halving.trial.mailbox import Mailbox, mail_folder, post_task
from halving.trial.messages import Granted, Message, Raised, Ready, Stopped
from tests.sdk.rerun.images import IMAGE, OTHER_IMAGE, again, of_an_image, plan_for

SDK = Path(__file__).parents[3] / "sdk"
TRAINABLE = """
import os

def train(run):
    for epoch in run.epochs():
        run.log({"hash": float(int(os.environ["PYTHONHASHSEED"]))}, step=epoch)
        run.report(score=epoch * run.params["lr"])
        run.save(seen=[epoch])


def raises(run):
    raise RuntimeError("no such luck")


def is_ended(run):
    for epoch in run.epochs():
        if epoch == 2:
            os.kill(os.getpid(), 15)
            raise RuntimeError("its data loader was ended, too")
        run.report(score=epoch)
        run.save(seen=[epoch])
"""


class Processes:
    """A cluster whose pods are processes in a folder with the trainable, with nothing of this process's
    environment.

    Args:
        offsets: of each image what its trainable adds to the score.
    """

    def __init__(self, folder: Path, offsets: Mapping[str, float] | None = None) -> None:
        self._folders = {}
        for number, (image, offset) in enumerate((offsets or {IMAGE: 0.0}).items()):
            self._folders[image] = folder / f"image-{number}"
            self._folders[image].mkdir()
            trainable = TRAINABLE.replace('run.params["lr"])', f'run.params["lr"] + {offset})', 1)
            (self._folders[image] / "in_image.py").write_text(trainable)
        self.heard: list[Message | Granted | Ready | None] = []
        self.status: int | None = None

    def train(
        self,
        store: Store,
        rerun: PodRerun,
        ready: Callable[[Ready, str | None], None],
        tell: Callable[[str], None],
    ) -> None:
        folder = mail_folder(rerun.project, rerun.run, 1)
        post_task(store, folder, rerun.request.to_bytes())
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SDK),
            "HALVING_ROOT": store.root,
            "HALVING_MAILBOX": folder,
        }
        command = [sys.executable, *COMMAND[1:]]
        with subprocess.Popen(
            command, cwd=self._folders[rerun.image], env={**environment, **rerun.variables}
        ) as process:
            mailbox = Mailbox(store, folder, sends="worker", reads="trial")
            try:
                said = mailbox.receive(60)
                assert isinstance(said, Ready)
                assert said.environment.keys() >= provenance.environment().keys()
                ready(said, None)
                mailbox.send(Granted(rerun.request.epochs, complete=True))
            except RerunRefused:
                process.send_signal(signal.SIGTERM)
                raise
            finally:
                self.status = process.wait(60)
        self.heard.append(mailbox.look())


@pytest.mark.slow
def test_the_process_in_a_pod_says_in_what_it_would_train_and_trains_when_it_may(
    store: Store, tmp_path: Path
) -> None:
    pods = Processes(tmp_path)
    plan = plan_for()
    assert plan.image is not None
    lines: list[str] = []
    new, remaining = train_in_pod(
        store, plan, plan.image, Options(repository=Path("/nowhere")), pods, lines.append
    )
    assert (pods.heard, pods.status) == ([Stopped()], 0)
    assert "code" in {difference.factor for difference in remaining}, "this trainable is another"
    read = read_run(store, "p", new.run)
    assert (read.status, read.parent["rerun_of"], read.params, read.record["seed"]) == (
        "finished",
        "p/r",
        {"lr": 0.1},
        3,
    )
    assert read.record["provenance"]["image"] == IMAGE
    assert [saved.epoch for saved in rerun_module.RunRecords(store, "p", new.run).checkpoints()][-1] == 3
    assert any("the trainable's source was" in line for line in lines)


@pytest.mark.slow
def test_the_process_of_a_refused_pod_ends_at_once_and_records_no_run(store: Store, tmp_path: Path) -> None:
    pods = Processes(tmp_path)
    with pytest.raises(RerunRefused, match="the trainable's source was"):
        again(store, plan_for(), pods, strict=True)
    assert pods.status == -signal.SIGTERM
    (run,) = store.names("runs/project=p")
    assert store.names(f"runs/project=p/{run}") == ["mail"]


@pytest.mark.slow
def test_a_pod_that_is_ended_while_it_trains_leaves_a_terminated_run_silently(
    store: Store, tmp_path: Path
) -> None:
    pods = Processes(tmp_path)
    with pytest.raises(RerunFailed, match="ended as terminated"):
        again(store, replace(plan_for(), trainable="in_image:is_ended"), pods)
    assert (pods.heard, pods.status) == ([None], 128 + signal.SIGTERM)


@pytest.mark.slow
def test_what_the_trainable_raises_in_a_pod_comes_back_and_its_run_has_failed(
    store: Store, tmp_path: Path
) -> None:
    pods = Processes(tmp_path)
    plan = replace(plan_for(), trainable="in_image:raises")
    with pytest.raises(RerunFailed, match="ended as failed"):
        again(store, plan, pods)
    (heard,) = pods.heard
    assert isinstance(heard, Raised)
    assert "RuntimeError: no such luck" in heard.error


@pytest.mark.slow
def test_effects_of_image_and_param_are_measured_in_pods_and_trained_once(
    store: Store, tmp_path: Path
) -> None:
    pods = Processes(tmp_path, {IMAGE: 0.0, OTHER_IMAGE: 5.0})
    options = Options(repository=Path("/nowhere"))
    lines: list[str] = []

    def recorded(image: str, lr: float) -> Planned:
        plan = plan_for(of_an_image(image))
        assert plan.image is not None
        new, _ = train_in_pod(
            store, replace(plan, params={"lr": lr}), plan.image, options, pods, lambda _: None
        )
        newest = rerun_module.RunRecords(store, "p", new.run).latest_checkpoint()
        return new, plan_of(new, newest)

    own = recorded(IMAGE, 0.1)
    other = recorded(OTHER_IMAGE, 0.2)
    wanted = plan_experiment(own, other, "score", 2, build=False)
    values = last_value(store, own[0], "score"), last_value(store, other[0], "score")
    kept = KeptReruns(store, build=False, in_pods=True)
    attribution = run_experiment(
        store, wanted, values, options, kept, read_kept(wanted, kept), lines.append, pods
    )
    assert values == (pytest.approx(0.3), pytest.approx(5.6))
    effects = {effect.name: (effect.effect, effect.error) for effect in attribution.effects}
    assert effects == {
        "image": (pytest.approx(5.0), None),
        "params": (pytest.approx(0.3), None),
        ALL: (pytest.approx(5.3), None),
    }
    assert attribution.unexplained == pytest.approx(0.0)
    runs = [read_run(store, "p", run) for arm in attribution.arms for run in arm.runs]
    assert [(info.record["provenance"]["image"], info.record["seed"]) for info in runs] == [
        (image, seed) for image in (IMAGE, OTHER_IMAGE, IMAGE, OTHER_IMAGE) for seed in (3, 4)
    ]
    assert len(read_kept(wanted, kept)) == len(wanted.reruns) == len(pods.heard) - 2
    assert not [line for line in lines if "the trainable's source was" in line], (
        "each arm is compared with the record of its own image"
    )
