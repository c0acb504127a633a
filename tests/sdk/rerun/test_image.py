"""A trial that ran in a pod is trained again in a pod of its image: what is compared before it trains, and
what ends it before.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, Store
from halving.query.runs import RunInfo, read_run
from halving.records import provenance
from halving.records.run_record import SavedCheckpoint
from halving.rerun import rerun as rerun_module
from halving.rerun.attribution import check_arms, read_kept, run_experiment
from halving.rerun.experiment import ALL, Planned, last_value, plan_experiment
from halving.rerun.factors import differences
from halving.rerun.image import ImagePlan, differences_before_start, pod_differences
from halving.rerun.kept_reruns import KeptReruns
from halving.rerun.plan import Plan, plan_of
from halving.rerun.pods import COMMAND, PodRerun
from halving.rerun.rerun import Options, RerunFailed, RerunRefused, train_in_pod
from halving.trial.mailbox import Mailbox, mail_folder, post_task
from halving.trial.messages import Granted, Message, Raised, Ready, Stopped
from tests.sdk.rerun.test_plan import TRIAL, info

SDK = Path(__file__).parents[3] / "sdk"
IMAGE = "registry.example:5000/train@sha256:12"
OTHER_IMAGE = "registry.example:5000/train@sha256:56"
ENVIRONMENT: dict[str, Any] = {
    "python": {"version": "3.11.9", "implementation": "CPython"},
    "packages": {"numpy": "2.0"},
    "hardware": {"machine": "x86_64", "platform": "Linux", "cpus": 2, "gpus": []},
    "image": IMAGE,
}
AS_RECORDED = Ready(ENVIRONMENT, "a" * 64)


def of_an_image(image: str = IMAGE, starts: dict[int, Any] | None = None, **trial: Any) -> RunInfo:
    captured = {"git": None, **ENVIRONMENT, "image": image}
    parent = {"trainable": "in_image:train", "trainable_sha256": "a" * 64, "sweep": "s", "trial": 7}
    recorded = {**TRIAL, "resources": {"cpus": 2}, **trial}
    return info({}, starts, provenance=captured, trial=recorded, parent=parent)


def plan_for(info: RunInfo | None = None) -> Plan:
    return plan_of(info or of_an_image(), SavedCheckpoint(3, 1, "sha256:e", {}))


@dataclass
class Says:
    """A cluster whose pod says of itself what it is given, and trains nothing."""

    said: Ready
    reruns: list[PodRerun] = field(default_factory=list)

    def train(
        self,
        store: Store,
        rerun: PodRerun,
        ready: Callable[[Ready, str | None], None],
        tell: Callable[[str], None],
    ) -> None:
        self.reruns.append(rerun)
        ready(self.said, "registry.example/train@sha256:34")


def again(store: Store, plan: Plan, pods: Any, **options: Any) -> list[str]:
    """Train in a pod; gives what was told."""
    lines: list[str] = []
    assert plan.image is not None
    train_in_pod(store, plan, plan.image, Options(repository=Path("/nowhere"), **options), pods, lines.append)
    return lines


def test_a_pod_gets_what_the_record_has_and_trains_to_the_recorded_epoch(
    store: Store,
) -> None:
    pods = Says(AS_RECORDED)
    with pytest.raises(RerunFailed, match="ended in its pod and recorded no run"):
        again(store, plan_for(), pods, strict=True)
    (rerun,) = pods.reruns
    assert (rerun.image, rerun.resources, rerun.rerun_of) == (IMAGE, {"cpus": 2}, "p/r")
    assert rerun.variables == {"PYTHONHASHSEED": "0"}, "and none that was not set"
    request = rerun.request
    assert (request.context["params"], request.context["seed"], request.epochs, request.threads) == (
        {"lr": 0.1},
        3,
        3,
        2,
    )
    assert request.context["run"] == rerun.run
    assert request.context["parent"]["rerun_of"] == "p/r"
    assert (request.image, request.recorded) == (IMAGE, {**TRIAL, "resources": {"cpus": 2}})


@pytest.mark.parametrize(
    ("said", "difference"),
    [
        (
            replace(AS_RECORDED, trainable_sha256="b" * 64),
            f"code: the trainable's source was {'a' * 64}, is {'b' * 64}",
        ),
        (
            replace(AS_RECORDED, trainable_sha256=None),
            f"code: the trainable's source was {'a' * 64}, is missing",
        ),
        (Ready({**ENVIRONMENT, "packages": {"numpy": "2.1"}}, "a" * 64), "packages: numpy was 2.0, is 2.1"),
        (Ready({**ENVIRONMENT, "image": "other"}, "a" * 64), f"image: image was {IMAGE}, is other"),
    ],
)
def test_differences_that_only_the_pod_knows_are_named_first_and_strict_refuses(
    store: Store, said: Ready, difference: str
) -> None:
    with pytest.raises(RerunRefused, match=r"Nothing was trained. Accept them by --except FACTOR") as refused:
        again(store, plan_for(), Says(said), strict=True)
    assert difference in str(refused.value)


def test_a_tag_and_another_image_are_named_and_strict_refuses_before_a_pod_starts(
    store: Store,
) -> None:
    later = {2: {"provenance": {"image": IMAGE}}, 3: {"provenance": {"image": "registry.example/train:2"}}}
    image = plan_for(of_an_image("registry.example/train:1", later)).image
    assert image is not None
    assert list(map(str, differences_before_start(image, "registry.example/train@sha256:34"))) == [
        f"image: attempt 2 was in the image {IMAGE}, is in that of attempt 1",
        "image: attempt 3 was in the image registry.example/train:2, is in that of attempt 1",
        "image: registry.example/train:1 was named without its digest, is registry.example/train@sha256:34",
    ]
    pods = Says(AS_RECORDED)
    with pytest.raises(
        RerunRefused, match=r"registry.example/train:1 was named without its digest, is not known"
    ):
        again(store, plan_for(of_an_image("registry.example/train:1")), pods, strict=True)
    with pytest.raises(
        RerunRefused,
        match=r"--except image would train in a worktree, with what is installed here\). Accept them by",
    ):
        again(
            store,
            replace(plan_for(of_an_image("registry.example/train:1")), commit="c" * 40),
            pods,
            strict=True,
        )
    assert pods.reruns == []


TAG = "registry.example:5000/team/train:1"


def of_a_tag(digest: str) -> RunInfo:
    """A trial of an image that its spec named by a tag, and the cluster by its digest."""
    trial = of_an_image(TAG)
    return replace(
        trial, record={**trial.record, "provenance": {**trial.record["provenance"], "image_digest": digest}}
    )


class Tagged:
    """A cluster on which a tag means an image, and its digest that or another one; each trains nothing."""

    def __init__(self, digest: str | None) -> None:
        self._digest = digest
        self.started: list[str] = []

    def train(
        self,
        store: Store,
        rerun: PodRerun,
        ready: Callable[[Ready, str | None], None],
        tell: Callable[[str], None],
    ) -> None:
        self.started.append(rerun.image)
        now = rerun.image if "@" in rerun.image else self._digest and f"docker.io/mirror@{self._digest}"
        ready(Ready({**ENVIRONMENT, "image": rerun.image}, "a" * 64), now)


def test_a_tag_that_means_what_it_meant_is_as_recorded_also_where_strict(store: Store) -> None:
    plan = plan_for(of_a_tag("sha256:12"))
    pods = Tagged("sha256:12")
    with pytest.raises(RerunFailed, match="recorded no run"):
        again(store, plan, pods, strict=True)
    assert pods.started == [TAG]
    (run,) = store.names("runs/project=p")
    assert json.loads(store.read(f"runs/project=p/{run}/image-0001.json")) == {"digest": "sha256:12"}


def test_where_a_tag_has_moved_a_pod_of_the_recorded_image_trains(store: Store) -> None:
    plan = plan_for(of_a_tag("sha256:12"))
    pods = Tagged("sha256:34")
    said = list[str]()
    assert plan.image is not None
    with pytest.raises(RerunFailed, match="recorded no run"):
        train_in_pod(
            store, plan, plan.image, Options(repository=Path("/nowhere"), strict=True), pods, said.append
        )
    assert pods.started == [TAG, "registry.example:5000/team/train@sha256:12"]
    assert f"{TAG} is another image now (docker.io/mirror@sha256:34), so it is left alone" in said
    assert store.names("runs/project=p") == []


def test_a_cluster_that_does_not_say_what_a_tag_means_is_named(store: Store) -> None:
    exact = "registry.example:5000/team/train@sha256:12"
    with pytest.raises(RerunRefused, match=f"image: {TAG} was {exact}, is not known by its digest"):
        again(store, plan_for(of_a_tag("sha256:12")), Tagged(None), strict=True)


def test_an_attempt_whose_digest_nobody_told_is_compared_by_its_name() -> None:
    def later(**image: str) -> list[str]:
        trial = of_a_tag("sha256:12")
        plan = plan_for(replace(trial, starts={2: {"provenance": image}}))
        assert plan.image is not None
        return [str(each) for each in plan.image.incomplete]

    assert later(image=TAG) == later(image=TAG, image_digest="sha256:12") == []
    moved = (
        "image: attempt 2 was in the image registry.example:5000/team/train@sha256:34, is in that of "
        "attempt 1"
    )
    assert later(image=TAG, image_digest="sha256:34") == [moved]
    assert later(image="other:1") == ["image: attempt 2 was in the image other:1, is in that of attempt 1"]


def test_two_tags_of_one_image_are_one_image_and_one_tag_of_two_images_is_two() -> None:
    def image_difference(digest: str, other: str, name: str) -> list[str]:
        renamed = of_a_tag(other)
        renamed.record["provenance"]["image"] = name
        return [str(each) for each in differences(of_a_tag(digest), renamed)]

    repository = "registry.example:5000/team/train"
    assert image_difference("sha256:12", "sha256:12", f"{repository}:latest") == []
    assert image_difference("sha256:12", "sha256:34", TAG) == [
        f"image: image was {repository}@sha256:12, is {repository}@sha256:34"
    ]


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
    image = ImagePlan(name=IMAGE, exact=IMAGE, resources={}, trainable_sha256=None)
    with pytest.raises(
        InvalidInput, match=f"the environment that the pod of the image {IMAGE} describes is not accepted"
    ):
        pod_differences(image, ENVIRONMENT, Ready(environment, None))


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (
            of_an_image("sha256:12"),
            r"its record has the digest of its image alone \(sha256:12\), and no name",
        ),
        (
            of_an_image(resources={}),
            "it ran in the image .*, and its record does not say with which resources",
        ),
    ],
)
def test_a_record_without_what_a_pod_needs_is_refused(info: RunInfo, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"run p/r cannot be trained again: {said}"):
        plan_for(info)


def test_a_new_environment_and_no_cluster_are_refused_for_a_trial_of_an_image(store: Store) -> None:
    with pytest.raises(
        InvalidInput, match="--env is not accepted for run p/r: it trains in a pod of the image"
    ):
        again(store, plan_for(), Says(AS_RECORDED), build=True)
    with pytest.raises(
        InvalidInput,
        match=(
            r"no cluster is at hand: .*set HALVING_CLUSTER .* and KUBECONFIG .* job rerun in the "
            r"deployment$"
        ),
    ):
        again(store, plan_for(), None)


def with_record(image: str = IMAGE, **changes: Any) -> Planned:
    """A trial of an image, and how it is trained again; changes are of its record, those of its provenance
    and parent over what it has.
    """
    trial = of_an_image(image)
    merged = {
        name: {**trial.record[name], **value} if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    trial = replace(
        trial, record={**trial.record, **merged}, parent={**trial.parent, **merged.get("parent", {})}
    )
    return trial, plan_for(trial)


def test_the_factors_of_an_image_are_one_arm_and_the_others_have_their_own() -> None:
    own = with_record()
    other = with_record(
        OTHER_IMAGE,
        params={"lr": 0.2},
        provenance={"packages": {"numpy": "2.1"}, "cuda": "13.0"},
        parent={"trainable_sha256": "b" * 64},
        trial={"resources": {"cpus": 8}},
    )
    wanted = plan_experiment(own, other, "score", 2, build=False)
    assert [(arm.name, arm.factors) for arm in wanted.arms] == [
        ("as it was", ()),
        ("image", ("code", "packages", "image")),
        ("params", ("params",)),
        (ALL, ("code", "params", "packages", "image")),
    ]
    image_arm, params_arm = (arm.plan for arm in wanted.arms[1:3])
    assert image_arm.image == ImagePlan(
        name=OTHER_IMAGE, exact=OTHER_IMAGE, resources={"cpus": 2}, trainable_sha256="b" * 64
    )
    assert (image_arm.params, image_arm.environment["packages"], image_arm.environment["cuda"]) == (
        {"lr": 0.1},
        {"numpy": "2.1"},
        "13.0",
    )
    assert (params_arm.image, params_arm.params) == (own[1].image, {"lr": 0.2})


def test_another_trainable_of_one_image_is_an_arm_and_unexplained_facts_are_left_out() -> None:
    other = with_record(
        parent={"trainable": "in_image:other", "trainable_sha256": "b" * 64},
        provenance={"packages": {"numpy": "2.1"}},
    )
    wanted = plan_experiment(with_record(), other, "score", 2, build=False)
    assert [arm.name for arm in wanted.arms] == ["as it was", "code"]
    changed = wanted.arms[1].plan
    assert (changed.trainable, changed.image) == (
        "in_image:other",
        replace(wanted.arms[0].plan.image, trainable_sha256="b" * 64),
    )
    assert wanted.left_out == {
        "packages": f"both ran in the image {IMAGE}, so what differs in it cannot be brought back"
    }
    tag = "registry.example/train:1"
    with pytest.raises(
        InvalidInput,
        match=r"both ran in the image .*; it is named without its digest, so it may have been two images",
    ):
        plan_experiment(
            with_record(tag), with_record(tag, parent={"trainable_sha256": "b" * 64}), "score", 2, build=False
        )


def test_more_cpus_cannot_be_changed_and_a_pod_is_not_compared_with_a_worktree(store: Store) -> None:
    own = with_record()
    more = with_record(
        provenance={"hardware": {"machine": "x86_64", "platform": "Linux", "cpus": 64, "gpus": []}}
    )
    with pytest.raises(
        InvalidInput,
        match=r"hardware: every pod asks for what \{'cpus': 2\} says, and runs where the cluster puts it",
    ):
        plan_experiment(own, more, "score", 2, build=False)
    info, plan = own
    here = replace(plan, name="p/here", image=None, commit="c" * 40)
    for pair in (((info, here), own), (own, (info, here))):
        with pytest.raises(
            InvalidInput,
            match=r"cannot be compared by reruns: p/r trains in a pod of its image, and p/here in a worktree",
        ):
            plan_experiment(*pair, "score", 2, build=False)
    wanted = plan_experiment(own, with_record(params={"lr": 0.2}), "score", 2, build=False)
    with pytest.raises(InvalidInput, match="no cluster is at hand"):
        check_arms(store, wanted, {}, Options(repository=Path("/nowhere")), None)
    with pytest.raises(InvalidInput, match="--env is not accepted for run p/r"):
        check_arms(store, wanted, {}, Options(repository=Path("/nowhere"), build=True), Says(AS_RECORDED))


def test_a_call_says_that_an_image_is_named_by_a_tag_before_it_reuses_reruns(store: Store) -> None:
    kept = KeptReruns(store, build=False, in_pods=True)
    plans = [with_record(name)[1] for name in (IMAGE, "registry.example/train:1", "registry.example/train:1")]
    assert kept.unwatched_sources(plans) == ["the image registry.example/train:1"]


@pytest.mark.parametrize(
    ("pods", "accepted", "here", "in_a_pod"),
    [
        (Says(AS_RECORDED), (), IMAGE, True),
        (Says(AS_RECORDED), ("image",), "", False),
        (None, (), IMAGE, False),
        (None, (), "", True),
    ],
)
def test_a_trial_with_image_and_commit_is_trained_in_a_worktree_only_on_demand(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    pods: Says | None,
    accepted: tuple[str, ...],
    here: str,
    in_a_pod: bool,
) -> None:
    class Reached(Exception):
        pass

    @contextmanager
    def in_worktree(*_: Any) -> Iterator[None]:
        raise Reached
        yield

    info = of_an_image()
    info.record["provenance"]["git"] = {"commit": "c" * 40, "dirty": False}
    monkeypatch.setenv("HALVING_IMAGE_DIGEST", here)
    monkeypatch.setattr(rerun_module, "plan_rerun", lambda *_: (info, plan_for(info)))
    monkeypatch.setattr(rerun_module, "read_points", lambda *_: {"score": None})
    monkeypatch.setattr(rerun_module, "prepare_interpreter", in_worktree)
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
