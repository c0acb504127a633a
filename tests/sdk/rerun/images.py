"""Trials that ran in pods, and clusters in which they are trained again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halving import Store
from halving.query.runs import RunInfo
from halving.records.run_record import SavedCheckpoint
from halving.rerun.plan import Plan, plan_of
from halving.rerun.pods import PodRerun
from halving.rerun.rerun import Options, train_in_pod
from halving.trial.messages import Ready
from tests.sdk.rerun.records import TRIAL, info

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
class ReportingCluster:
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
