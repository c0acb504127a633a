"""A trial that ran in a pod is trained again in a pod of its image: what is compared, and what ends it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, Store
from halving.query.runs import RunInfo
from halving.rerun import rerun as rerun_module
from halving.rerun.factors import differences
from halving.rerun.image import ImagePlan, differences_before_start, pod_differences
from halving.rerun.pods import PodRerun
from halving.rerun.rerun import Options, RerunFailed, RerunRefused, train_in_pod
from halving.trial.messages import Ready
from tests.sdk.rerun.images import (
    AS_RECORDED,
    ENVIRONMENT,
    IMAGE,
    ReportingCluster,
    again,
    of_an_image,
    plan_for,
)
from tests.sdk.rerun.records import TRIAL


def test_a_pod_gets_what_the_record_has_and_trains_to_the_recorded_epoch(
    store: Store,
) -> None:
    pods = ReportingCluster(AS_RECORDED)
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
        again(store, plan_for(), ReportingCluster(said), strict=True)
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
    pods = ReportingCluster(AS_RECORDED)
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
        again(store, plan_for(), ReportingCluster(AS_RECORDED), build=True)
    with pytest.raises(
        InvalidInput,
        match=(
            r"no cluster is at hand: .*set HALVING_CLUSTER .* and KUBECONFIG .* job rerun in the "
            r"deployment$"
        ),
    ):
        again(store, plan_for(), None)


@pytest.mark.parametrize(
    ("pods", "accepted", "here", "in_a_pod"),
    [
        (ReportingCluster(AS_RECORDED), (), IMAGE, True),
        (ReportingCluster(AS_RECORDED), ("image",), "", False),
        (None, (), IMAGE, False),
        (None, (), "", True),
    ],
)
def test_a_trial_with_image_and_commit_is_trained_in_a_worktree_only_on_demand(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    pods: ReportingCluster | None,
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
