"""A trial that ran in a pod is trained again in a pod of its image: what is compared before it trains, and what ends it before."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, Store
from halving.query.runs import RunInfo, read_run
from halving.records.run_record import SavedCheckpoint
from halving.rerun import rerun as rerun_module
from halving.rerun.experiment import experiment
from halving.rerun.image import ImagePlan, known_before, known_in_pod
from halving.rerun.plan import Plan, plan_of
from halving.rerun.pods import COMMAND, PodRerun
from halving.rerun.rerun import Options, RerunFailed, RerunRefused, train_in_pod
from halving.trial.mailbox import Mailbox, mail_folder, post_task
from halving.trial.messages import Granted, Message, Raised, Ready, Stopped
from tests.sdk.rerun.test_plan import TRIAL, info

SDK = Path(__file__).parents[3] / "sdk"
IMAGE = "registry.example:5000/train@sha256:12"
ENVIRONMENT: dict[str, Any] = {
    "python": {"version": "3.11.9", "implementation": "CPython"},
    "packages": {"numpy": "2.0"},
    "hardware": {"machine": "x86_64", "platform": "Linux", "cpus": 2, "gpus": []},
    "image": IMAGE,
}
AS_RECORDED = Ready(ENVIRONMENT, "a" * 64)


def of_an_image(image: str = IMAGE, starts: dict[int, Any] | None = None, **trial: Any) -> RunInfo:
    provenance = {"git": None, **ENVIRONMENT, "image": image}
    parent = {"trainable": "in_image:train", "trainable_sha256": "a" * 64, "sweep": "s", "trial": 7}
    recorded = {**TRIAL, "resources": {"cpus": 2}, **trial}
    return info({}, starts, provenance=provenance, trial=recorded, parent=parent)


def planned(found: RunInfo | None = None) -> Plan:
    return plan_of(found or of_an_image(), SavedCheckpoint(3, 1, "sha256:e", {}))


@dataclass
class Says:
    """A cluster whose pod says of itself what it is given, and trains nothing."""

    said: Ready
    asked: list[PodRerun] = field(default_factory=list)

    def train(self, store: Store, rerun: PodRerun, ready: Callable[[Ready, str | None], None], tell: Callable[[str], None]) -> None:
        self.asked.append(rerun)
        ready(self.said, "registry.example/train@sha256:34")


def again(store: Store, plan: Plan, pods: Any, **options: Any) -> list[str]:
    """Train in a pod; gives what was told."""
    told: list[str] = []
    assert plan.image is not None
    train_in_pod(store, plan, plan.image, Options(repository=Path("/nowhere"), **options), pods, told.append)
    return told


def test_a_pod_gets_the_recorded_image_resources_variables_params_and_seed_and_trains_to_the_recorded_epoch(store: Store) -> None:
    pods = Says(AS_RECORDED)
    with pytest.raises(RerunFailed, match="ended in its pod and recorded no run"):
        again(store, planned(), pods, strict=True)
    (asked,) = pods.asked
    assert (asked.image, asked.resources, asked.rerun_of) == (IMAGE, {"cpus": 2}, "p/r")
    assert asked.variables == {"PYTHONHASHSEED": "0"}, "and none that was not set"
    request = asked.request
    assert (request.given["params"], request.given["seed"], request.epochs, request.threads) == ({"lr": 0.1}, 3, 3, 2)
    assert request.given["run"] == asked.run
    assert request.given["parent"]["rerun_of"] == "p/r"
    assert (request.image, request.recorded) == (IMAGE, {**TRIAL, "resources": {"cpus": 2}})


@pytest.mark.parametrize(
    ("said", "difference"),
    [
        (replace(AS_RECORDED, trainable_sha256="b" * 64), f"code: the trainable's source was {'a' * 64}, is {'b' * 64}"),
        (replace(AS_RECORDED, trainable_sha256=None), f"code: the trainable's source was {'a' * 64}, is missing"),
        (Ready({**ENVIRONMENT, "packages": {"numpy": "2.1"}}, "a" * 64), "packages: numpy was 2.0, is 2.1"),
        (Ready({**ENVIRONMENT, "image": "other"}, "a" * 64), f"image: image was {IMAGE}, is other"),
    ],
)
def test_what_only_the_pod_can_tell_is_named_before_it_trains_and_strict_refuses_there(store: Store, said: Ready, difference: str) -> None:
    with pytest.raises(RerunRefused, match=r"Nothing was trained. Accept them by --except FACTOR") as refused:
        again(store, planned(), Says(said), strict=True)
    assert difference in str(refused.value)


def test_a_tag_and_an_attempt_in_another_image_are_named_and_strict_refuses_before_there_is_a_pod(store: Store) -> None:
    later = {2: {"provenance": {"image": IMAGE}}, 3: {"provenance": {"image": "registry.example/train:2"}}}
    found = planned(of_an_image("registry.example/train:1", later)).image
    assert found is not None
    assert list(map(str, known_before(found, "registry.example/train@sha256:34"))) == [
        f"image: attempt 2 was in the image {IMAGE}, is in that of attempt 1",
        "image: attempt 3 was in the image registry.example/train:2, is in that of attempt 1",
        "image: registry.example/train:1 was named without its digest, is registry.example/train@sha256:34",
    ]
    pods = Says(AS_RECORDED)
    with pytest.raises(RerunRefused, match=r"registry.example/train:1 was named without its digest, is not known"):
        again(store, planned(of_an_image("registry.example/train:1")), pods, strict=True)
    with pytest.raises(RerunRefused, match=r"--except image would train in a worktree, with what is installed here\). Accept them by"):
        again(store, replace(planned(of_an_image("registry.example/train:1")), commit="c" * 40), pods, strict=True)
    assert pods.asked == []


@pytest.mark.parametrize(
    "environment",
    [
        {"python": "3.11"},
        {"hardware": {"gpus": 7}},
        {"packages": {"numpy": ["2"]}},
        {"python": {"version": {}}},
        {"python": {"version": "\ud800"}},
        {"packages_from": 1},
    ],
)
def test_a_pod_that_describes_itself_in_another_form_is_refused(environment: dict[str, Any]) -> None:
    image = ImagePlan(name=IMAGE, resources={}, trainable_sha256=None)
    with pytest.raises(InvalidInput, match=f"the environment that the pod of the image {IMAGE} describes is not accepted"):
        known_in_pod(image, ENVIRONMENT, Ready(environment, None))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (of_an_image("sha256:12"), r"its record has the digest of its image alone \(sha256:12\), and no name"),
        (of_an_image(resources={}), "it ran in the image .*, and its record does not say with which resources"),
    ],
)
def test_a_record_without_what_a_pod_needs_is_refused(found: RunInfo, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"run p/r cannot be trained again: {said}"):
        planned(found)


def test_a_new_environment_no_cluster_and_an_explanation_by_reruns_are_refused_for_a_trial_of_an_image(store: Store) -> None:
    with pytest.raises(InvalidInput, match="--env is not accepted for run p/r: it trains in a pod of the image"):
        again(store, planned(), Says(AS_RECORDED), build=True)
    with pytest.raises(
        InvalidInput, match=r"no cluster is at hand: .*set HALVING_CLUSTER .* and KUBECONFIG .* job rerun in the deployment$"
    ):
        again(store, planned(), None)
    one = of_an_image(), planned()
    with pytest.raises(InvalidInput, match="p/r cannot be explained by reruns: its code is in its image"):
        experiment(one, one, "score", 2, build=False)


@pytest.mark.parametrize(
    ("pods", "accepted", "here", "in_a_pod"),
    [(Says(AS_RECORDED), (), IMAGE, True), (Says(AS_RECORDED), ("image",), "", False), (None, (), IMAGE, False), (None, (), "", True)],
)
def test_a_trial_whose_record_has_a_commit_too_is_trained_in_a_worktree_only_on_demand_or_without_a_cluster_in_its_image(
    store: Store, monkeypatch: pytest.MonkeyPatch, pods: Says | None, accepted: tuple[str, ...], here: str, in_a_pod: bool
) -> None:
    class Reached(Exception):
        pass

    @contextmanager
    def in_worktree(*_: Any) -> Iterator[None]:
        raise Reached
        yield

    found = of_an_image()
    found.record["provenance"]["git"] = {"commit": "c" * 40, "dirty": False}
    monkeypatch.setenv("HALVING_IMAGE_DIGEST", here)
    monkeypatch.setattr(rerun_module, "planned", lambda *_: (found, planned(found)))
    monkeypatch.setattr(rerun_module, "read_points", lambda *_: {"score": None})
    monkeypatch.setattr(rerun_module, "prepared", in_worktree)
    options = Options(repository=Path("/nowhere"), accepted=accepted)
    # Without a cluster a pod is refused; with this one it trains nothing.
    with pytest.raises(Reached if not in_a_pod else (InvalidInput, RerunFailed)):
        rerun_module.rerun(store, "p", "r", options, lambda _: None, pods)


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
    """A cluster whose pods are processes in a folder with the trainable, with nothing of this process's environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "in_image.py").write_text(TRAINABLE)
        self.heard: list[Message | Granted | Ready | None] = []
        self.status: int | None = None

    def train(self, store: Store, rerun: PodRerun, ready: Callable[[Ready, str | None], None], tell: Callable[[str], None]) -> None:
        folder = mail_folder(rerun.project, rerun.run, 1)
        post_task(store, folder, rerun.request.to_bytes())
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SDK), "HALVING_ROOT": store.root, "HALVING_MAILBOX": folder}
        command = [sys.executable, *COMMAND[1:]]
        with subprocess.Popen(command, cwd=self._folder, env={**environment, **rerun.variables}) as process:
            mailbox = Mailbox(store, folder, sends="worker", reads="trial")
            try:
                said = mailbox.receive(60)
                assert isinstance(said, Ready)
                ready(said, None)
                mailbox.send(Granted(rerun.request.epochs, complete=True))
            except RerunRefused:
                process.send_signal(signal.SIGTERM)
                raise
            finally:
                self.status = process.wait(60)
        self.heard.append(mailbox.look())


@pytest.mark.slow
def test_the_process_in_a_pod_says_in_what_it_would_train_and_trains_when_it_may(store: Store, tmp_path: Path) -> None:
    pods, plan = Processes(tmp_path), planned()
    assert plan.image is not None
    told: list[str] = []
    new, found = train_in_pod(store, plan, plan.image, Options(repository=Path("/nowhere")), pods, told.append)
    assert (pods.heard, pods.status) == ([Stopped()], 0)
    assert "code" in {one.factor for one in found}, "this trainable is another"
    read = read_run(store, "p", new.run)
    assert (read.status, read.parent["rerun_of"], read.params, read.record["seed"]) == ("finished", "p/r", {"lr": 0.1}, 3)
    assert read.record["provenance"]["image"] == IMAGE
    assert [saved.epoch for saved in rerun_module.RunRecords(store, "p", new.run).checkpoints()][-1] == 3
    assert any("the trainable's source was" in line for line in told)


@pytest.mark.slow
def test_the_process_of_a_refused_pod_ends_at_once_and_records_no_run(store: Store, tmp_path: Path) -> None:
    pods = Processes(tmp_path)
    with pytest.raises(RerunRefused, match="the trainable's source was"):
        again(store, planned(), pods, strict=True)
    assert pods.status == -signal.SIGTERM
    (run,) = store.names("runs/project=p")
    assert store.names(f"runs/project=p/{run}") == ["mail"]


@pytest.mark.slow
def test_a_pod_that_is_ended_while_it_trains_leaves_a_terminated_run_and_says_nothing(store: Store, tmp_path: Path) -> None:
    pods = Processes(tmp_path)
    with pytest.raises(RerunFailed, match="ended as terminated"):
        again(store, replace(planned(), trainable="in_image:is_ended"), pods)
    assert (pods.heard, pods.status) == ([None], 128 + signal.SIGTERM)


@pytest.mark.slow
def test_what_the_trainable_raises_in_a_pod_comes_back_and_its_run_has_failed(store: Store, tmp_path: Path) -> None:
    pods = Processes(tmp_path)
    plan = replace(planned(), trainable="in_image:raises")
    with pytest.raises(RerunFailed, match="ended as failed"):
        again(store, plan, pods)
    (heard,) = pods.heard
    assert isinstance(heard, Raised)
    assert "RuntimeError: no such luck" in heard.error
