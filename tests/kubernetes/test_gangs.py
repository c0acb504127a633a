"""Gangs of pods on a real cluster: whatever becomes of one of their pods, and when two do not fit
together.
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from halving.query.runs import read_run
from halving.rerun.rerun import Options, rerun
from resources.execution.kubernetes import gang_process, gang_rules, pod_processes
from resources.execution.kubernetes.rerun_pod import rerun_pods
from tests.backends import CHECKOUT
from tests.kubernetes.image_sweeps import LONG_EPOCH, RanInPods, Site, Spec, ask_back_once_it_trains
from tests.kubernetes.overlay import IMAGE, write_bytecode
from tests.resources.execution.kubernetes.gang_sweeps import TRAINABLE
from tests.resources.execution.worked_sweeps import state_of

pytestmark = [
    pytest.mark.usefixtures("gpus"),
    pytest.mark.skipif(
        "HALVING_TEST_SDK_IMAGE" in os.environ,
        reason="the image of HALVING_TEST_SDK_IMAGE need not have torch",
    ),
]

HUNGRY = """

def train_through_faults(run):
    def held(run, epoch):
        if run.attempt == 3 and epoch == 4 and run.rank == 2:
            while not any(saved.attempt == 3 for saved in run.records.checkpoints()):
                time.sleep(0.1)  # its first epoch's, which is written beside training
            kept = bytearray(os.urandom(1)) * (4 << 30)
        return epoch == run.attempt + 1 and run.attempt < 6

    train_slowly(run, held)
"""


@pytest.fixture
def gang(
    site: Site,
    run: Callable[..., RanInPods],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., RanInPods]:
    """Make a sweep of gangs in an image with torch."""
    monkeypatch.setattr(gang_rules, "SETTLE_SECONDS", 8.0)
    monkeypatch.setattr(gang_rules, "GROW_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(gang_process, "_PLACE_LOOK_SECONDS", 1.0)
    monkeypatch.setattr(gang_process, "BEAT_LOST_SECONDS", 20.0)
    code = {"metadata": {"name": "gang"}, "data": {"gang.py": TRAINABLE + HUNGRY + LONG_EPOCH}}
    if not [
        config_map
        for config_map in site.core.list_namespaced_config_map(site.namespace).items
        if config_map.metadata.name == "gang"
    ]:
        site.core.create_namespaced_config_map(site.namespace, code)
        write_bytecode(
            "halving.trial_process.pod", "halving.trial_process.preload_gang", "torch.optim", "torch._dynamo"
        )  # on shared folders
    folders = {"sdk": CHECKOUT / "sdk", "torch": Path(torch.__file__).parent.parent}
    pods = {
        "env": {**site.settings, "PYTHONPATH": "/gang:/sdk:/torch"},
        "volumes": [
            {"name": "gang", "configMap": {"name": "gang"}},
            *({"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()),
        ],
        "volume_mounts": [
            {"name": name, "mountPath": f"/{name}", "readOnly": True} for name in ("gang", *folders)
        ],
    }

    def make(**changes: Any) -> RanInPods:
        resources = {
            "gpus": 2,
            "nodes": 2,
            "memory": "3Gi",
            "grace_seconds": 20,
            **changes.pop("resources", {}),
        }
        return run(
            pods,
            resources=resources,
            **{"trainable": "gang:train", "strategy": {"random": {"budget": 2}}, **changes},
        )

    return make


def test_a_gangs_long_epoch_is_not_lost_to_a_more_important_sweep(
    gang: Callable[..., RanInPods], small_spec: Spec
) -> None:
    ran = gang(
        trainable="gang:train_through_a_long_epoch",
        strategy={"random": {"budget": 3}},
        resources={"gpus": 1, "grace_seconds": 1},
    )
    ask_back_once_it_trains(ran, small_spec)


def test_an_elastic_gang_comes_to_its_end_through_every_fault_of_its_pods(
    gang: Callable[..., RanInPods],
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = gang(
        trainable="gang:train_through_faults",
        strategy={"random": {"budget": 7}},
        elastic={"min_nodes": 1},
        max_retries=1,
        max_preemptions=9,
    )
    noted = list[str]()
    policies = list[str]()
    real = pod_processes.trial_manifest

    def without_image(image: str, *arguments: Any, **named: Any) -> dict[str, Any]:
        """The first pod of the second node gets an image that is nowhere."""
        if "-a1-n1-" in named["name"] and not broken:
            broken.append(named["name"])
            image = "localhost/nowhere:1"
        return real(image, *arguments, **named)

    broken: list[str] = []
    monkeypatch.setattr(pod_processes, "trial_manifest", without_image)

    def pod_of(attempt: int) -> str:
        """The pod of the second node, once it trains in this attempt."""
        ran.wait_for(lambda: any(saved.attempt == attempt for saved in ran.records(0).checkpoints()), 150)
        return next(pod.metadata.name for pod in ran.pods() if f"-a{attempt}-n1-" in pod.metadata.name)

    def cause_faults() -> None:
        noted.append(
            ran.wait_for(
                lambda: next((reason for reason in ran.waiting() if reason and "ImagePull" in reason), None)
            )
        )
        site.core.delete_namespaced_pod(pod_of(2), site.namespace)
        policies.extend(policy.metadata.name for policy in site.policies())
        lost = pod_of(4)
        site.core.create_namespaced_pod(site.namespace, _holding_two_gpus())
        _cut_off(lost)
        ran.wait_for(lambda: any(saved.attempt == 5 for saved in ran.records(0).checkpoints()), 150)
        site.core.delete_namespaced_pod("holds-gpus", site.namespace, grace_period_seconds=0)

    causing = ran.meanwhile(cause_faults)
    ran.work()
    causing.join(10)
    row = ran.row()
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 6, 1, 2), ran.errors()
    assert "of the gang's 2 pods cannot start; node 1: " in noted[0]
    assert ran.outcomes() == ["requeue", "preempted", "retry", "preempted", "requeue", "complete"]
    _, notice, memory, lost, _, _ = ran.errors()
    assert "node 1 of the gang (ranks 2 to 3)" in str(notice)
    assert "received SIGTERM; all ranks saved a checkpoint at the same step" in str(notice)
    assert "node 1 of the gang (ranks 2 to 3)" in str(memory)
    assert "out of memory" in str(memory), (
        "as the cluster says, or the rank that is killed, whichever is heard of first"
    )
    assert "node 1 of the gang (ranks 2 to 3)" in str(lost)
    assert "has not been heard of for" in str(lost)
    state = state_of(ran)
    assert [size for _, size in state["seen"]] == [2, 4, 4, 4, 2, 4, 4]
    for epoch in (2, 3, 6):  # the gang grew, or had a notice
        steps = [step for step_epoch, step in state["steps"] if step_epoch == epoch]
        assert steps == list(range(len(steps))), "no step was trained again"
    assert len(policies) == 1
    assert all(pod.metadata.deletion_timestamp for pod in ran.pods())
    assert site.policies() == []


def test_two_gangs_of_three_gpus_on_four_train_in_turn_and_one_of_them_again(
    gang: Callable[..., RanInPods],
) -> None:
    gangs = [gang(resources={"gpus": 1, "nodes": 3, "memory": "1Gi"}, seed=seed) for seed in (1, 2)]
    working = [threading.Thread(target=pods.work, daemon=True) for pods in gangs]
    for work in working:
        work.start()
    for work in working:
        work.join(150)
    assert [(pods.row().status, pods.row().attempt) for pods in gangs] == [("completed", 1)] * 2, [
        pods.row().error for pods in gangs
    ]
    backend = gangs[0].backend
    key = f"{gangs[0].sweep}.0000"
    said = list[str]()
    options = Options(repository=Path("/nowhere"), accepted=("image",))
    pods = rerun_pods(backend.catalog_url)
    verdict = rerun(backend.store, "small", key, options, said.append, pods)
    assert (verdict.verdict, verdict.weights_equal) == ("identical", True), said
    assert read_run(backend.store, "small", verdict.run).record["trial"]["resources"]["nodes"] == 3


def _cut_off(pod: str) -> None:
    """Stop all processes of a pod, as if its node were lost: the cluster goes on saying that it runs.

    The node is this machine.
    """
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if pod.encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGSTOP)


def _holding_two_gpus() -> dict[str, Any]:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
    }
    return {"metadata": {"name": "holds-gpus"}, "spec": {"restartPolicy": "Never", "containers": [container]}}
