"""Which factors of trials that ran in pods can be told apart by reruns."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, Store
from halving.rerun.attribution import check_arms
from halving.rerun.experiment import ALL, Planned, plan_experiment
from halving.rerun.image import ImagePlan
from halving.rerun.kept_reruns import KeptReruns
from halving.rerun.rerun import Options
from tests.sdk.rerun.images import AS_RECORDED, IMAGE, OTHER_IMAGE, ReportingCluster, of_an_image, plan_for


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
        check_arms(
            store, wanted, {}, Options(repository=Path("/nowhere"), build=True), ReportingCluster(AS_RECORDED)
        )


def test_a_call_says_that_an_image_is_named_by_a_tag_before_it_reuses_reruns(store: Store) -> None:
    kept = KeptReruns(store, build=False, in_pods=True)
    plans = [with_record(name)[1] for name in (IMAGE, "registry.example/train:1", "registry.example/train:1")]
    assert kept.unwatched_sources(plans) == ["the image registry.example/train:1"]
