"""The rerun of a trial on several nodes: one pod looks around, and a gang trains."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving.query.runs import read_run
from halving.rerun.pods import RerunFailed
from halving.rerun.rerun import Options, rerun
from resources.execution.kubernetes import rerun_pod
from resources.execution.kubernetes.rerun_pod import rerun_pods
from tests.resources.execution.kubernetes.gang_sweeps import GangSweep

pytestmark = pytest.mark.slow


def test_a_trial_on_two_nodes_is_trained_again_on_two_and_is_identical(
    run: Callable[..., GangSweep],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = run(gpus=2, resources={"gpus": 1}, strategy={"random": {"budget": 2}}).work()
    cluster = ran.cluster
    store = ran.backend.store
    key = f"{ran.sweep}.0000"
    said = list[str]()
    before = dict[str, Any]()

    def new_manifests() -> list[dict[str, Any]]:
        return [manifest for name, manifest in cluster.manifests.items() if name not in before]

    def again(**options: Any) -> Any:
        before.update(cluster.manifests)
        return rerun(
            store, "small", key, Options(repository=Path("/nowhere"), **options), said.append, rerun_pods()
        )

    verdict = again()
    assert (verdict.verdict, verdict.points, verdict.weights_equal) == ("identical", 2, True), said
    info = read_run(store, "small", verdict.run)
    assert (info.status, info.parent["rerun_of"]) == ("finished", f"small/{key}")
    resources = info.record["trial"]["resources"]
    assert (resources["nodes"], resources["processes"]) == (2, 1)
    looking, *gang = [manifest["spec"]["containers"][0]["command"][-1] for manifest in new_manifests()]
    assert (looking, gang) == ("halving.rerun.trial_process", ["halving.trial_process.pod"] * 2)
    assert {manifest["metadata"]["labels"]["halving/pod"] for manifest in new_manifests()} == {"rerun"}
    assert not cluster.pods or cluster.deleted >= set(cluster.pods)
    assert [
        store.names(f"runs/project=small/{verdict.run}/mail/{folder}") for folder in ("0000", "0001")
    ] == [[], []]

    cluster.stuck = {"n1"}
    monkeypatch.setattr(
        rerun_pod,
        "_parse_resources",
        lambda recorded, _, real=rerun_pod._parse_resources: real(
            {**recorded, "start_timeout_seconds": 4}, _
        ),
    )
    with pytest.raises(
        RerunFailed,
        match=(
            r"in pods of the image i came to no end .*node 1 of the gang: .*ImagePull.*start the job "
            r"rerun$"
        ),
    ):
        again()
    assert not cluster.pods or cluster.deleted >= set(cluster.pods)
