"""Trials in pods of an image with only the SDK: what becomes of them on a real cluster, with the worker in
the tests' own process.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from halving.cli.main import main
from halving.errors import NotFound
from halving.query.runs import read_run
from halving.rerun.execution import TrialRequest
from halving.rerun.pods import PodRerun
from halving.rerun.rerun import Options, rerun
from resources.catalog import AttemptRow
from resources.execution import watches
from resources.execution.kubernetes.rerun_pod import rerun_pods
from resources.scheduling import leases
from resources.scheduling.sweeps import pause_sweep, resume_sweep
from tests.backends import CHECKOUT
from tests.kubernetes.image_sweeps import DATABASE_PASSWORD, RanInPods, Spec, ask_back_once_it_trains
from tests.resources.execution.worked_sweeps import count_epochs


def test_a_sweep_in_pods_of_an_image_comes_to_its_end_by_the_decisions_of_its_worker(
    run: Callable[..., RanInPods],
) -> None:
    ran = run(
        max_trials=3,
        strategy={"asha": {"sampler": "random", "min_budget": 1, "max_budget": 9, "reduction_factor": 3}},
    ).work()
    rows = [ran.row(number) for number in range(3)]
    assert sorted(row.status for row in rows) == ["paused", "paused", "paused"], [row.error for row in rows]
    best = max(rows, key=lambda row: row.params["x"])
    assert [saved.epoch for saved in ran.records(best.number).checkpoints()][-1] == 3
    record = ran.records(0).read()
    assert record["provenance"]["image"] == ran.site.image
    assert "dagster" not in record["provenance"]["packages"]
    assert all(pod.metadata.deletion_timestamp for pod in ran.pods()), "paused trials hold no pod"
    assert ran.backend.store.names(ran.records(0).folder + "/mail/0001") == []


@pytest.mark.usefixtures("gpus")
def test_a_pod_sees_the_store_and_nothing_else_and_cannot_write_its_image(
    run: Callable[..., RanInPods],
) -> None:
    ran = run(trainable="in_image:look_around", resources={"gpus": 1})
    environments: list[str] = []
    ran.meanwhile(
        lambda: environments.append(
            json.dumps(ran.site.core.api_client.sanitize_for_serialization(ran.wait_for(ran.pods)))
        )
    )
    ran.work()
    (entry,) = ran.backend.store.names(ran.records(0).folder + "/artifacts")
    digest = json.loads(ran.backend.store.read(f"{ran.records(0).folder}/artifacts/{entry}"))["digest"]
    record = json.loads(ran.backend.store.get_blob(digest))
    assert (record["uid"], record["writable"], record["token"]) == (1000, False, False)
    assert record["env"]["AWS_SECRET_ACCESS_KEY"] == ran.site.store_key
    for text in (environments[0], json.dumps(record), json.dumps(ran.records(0).read())):
        assert DATABASE_PASSWORD not in text
        assert "HALVING_CATALOG" not in text
    assert ran.site.store_key not in environments[0] + json.dumps(ran.records(0).read())
    assert (
        len(
            ran.records(0)
            .read()["provenance"]["hardware"]["visible_gpus"]["NVIDIA_VISIBLE_DEVICES"]
            .split(",")
        )
        == 1
    )


def test_a_pod_deleted_in_mid_epoch_is_preempted_and_its_trial_goes_on_in_another(
    run: Callable[..., RanInPods],
) -> None:
    ran = run(trainable="in_image:train_slowly", max_retries=0)
    names: list[str] = []

    def reclaim() -> None:
        ran.wait_for(ran.records(0).checkpoints)
        names.extend(pod.metadata.name for pod in ran.pods())
        ran.site.core.delete_namespaced_pod(names[0], ran.site.namespace)
        names.append(
            ran.wait_for(lambda: [pod.metadata.name for pod in ran.pods() if pod.metadata.name != names[0]])[
                0
            ]
        )

    reclaiming = ran.meanwhile(reclaim)
    ran.work()
    reclaiming.join(10)
    row = ran.row()
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 2, 0, 1), row.error
    assert ran.outcomes()[0] == "preempted"
    assert len(set(names)) == 2
    saved = ran.records(0).checkpoints()
    assert [(checkpoint.epoch, checkpoint.attempt) for checkpoint in saved if checkpoint.epoch == 4] == [
        (4, 2)
    ]
    assert [checkpoint for checkpoint in saved if checkpoint.attempt == 1], (
        "the first attempt saved what it had"
    )
    resumed = json.loads(ran.backend.store.read(f"{ran.records(0).folder}/start-0002.json"))
    assert resumed["attempt"] == 2


def test_a_paused_sweep_gets_its_trial_back_from_its_pod_with_a_checkpoint(
    run: Callable[..., RanInPods],
) -> None:
    ran = run(trainable="in_image:train_slowly")
    epochs: list[int] = []

    def pause_and_resume() -> None:
        ran.wait_for(ran.records(0).checkpoints)
        pause_sweep(ran.backend.catalog, ran.sweep)
        ran.wait_for(lambda: ran.row().status == "queued")
        ran.wait_for(lambda: not ran.pods())
        epochs.append(ran.records(0).checkpoints()[-1].epoch)
        resume_sweep(ran.backend.catalog, ran.sweep)

    ran.meanwhile(pause_and_resume)
    ran.work()
    row = ran.row()
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 2, 0, 0), row.error
    assert epochs
    assert epochs[0] >= 1


def test_an_epoch_longer_than_the_grace_period_is_not_lost_to_an_important_sweep(
    run: Callable[..., RanInPods], small_spec: Spec
) -> None:
    ran = run(
        trainable="in_image:train_through_a_long_epoch",
        strategy={"random": {"budget": 3}},
        resources={"grace_seconds": 1},
    )
    ask_back_once_it_trains(ran, small_spec)


WORKER = """
import sys
from resources.execution.worker import TrialRunner, work
from resources.backend import Backend
from resources.scheduling.scheduler import Scheduler
root, catalog, sweep, dataset, digest = sys.argv[1:]
backend = Backend(root=root, catalog_url=catalog)
scheduler = Scheduler(backend.catalog, sweep)
runner = TrialRunner(scheduler, backend.store, dataset_name=dataset, dataset_digest=digest, labels={})
work(scheduler, runner, lambda _: None)
"""


def test_a_worker_that_is_asked_to_end_takes_its_trials_pod_along_with_a_checkpoint(
    run: Callable[..., RanInPods],
) -> None:
    ran = run(trainable="in_image:train_slowly", strategy={"random": {"budget": 100}})
    arguments = [
        ran.backend.store.root,
        ran.backend.catalog.url,
        ran.sweep,
        ran.snapshot.name,
        ran.snapshot.digest,
    ]
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, *arguments], cwd=CHECKOUT, stderr=subprocess.PIPE, text=True
    )
    ran.wait_for(ran.records(0).checkpoints)
    worker.terminate()
    _, said = worker.communicate(timeout=90)
    assert worker.returncode == 128 + signal.SIGTERM, said
    row = ran.row()
    assert (row.status, row.failures, row.preemptions) == ("queued", 0, 1)
    assert "was ended by SIGTERM" in str(row.error)
    ended = json.loads(ran.backend.store.read(f"{ran.records(0).folder}/end-0001.json"))
    assert (ended["status"], ended["epoch"]) == ("terminated", ran.records(0).checkpoints()[-1].epoch)
    assert all(pod.metadata.deletion_timestamp for pod in ran.pods())


def test_a_pod_out_of_memory_counts_as_a_crash_that_names_it_and_its_trial_goes_on(
    run: Callable[..., RanInPods],
) -> None:
    ran = run(trainable="in_image:take_all_memory", resources={"memory": "400Mi"}, max_retries=1).work()
    row = ran.row()
    assert (row.status, row.attempt, row.failures) == ("completed", 2, 1), row.error
    with ran.backend.catalog.read() as session:
        first = session.scalars(
            select(AttemptRow).where(AttemptRow.sweep == ran.sweep, AttemptRow.attempt == 1)
        ).one()
    assert first.outcome == "retry"
    assert "OOMKilled" in str(first.error)
    assert "400Mi" in str(first.error)
    saved = [(checkpoint.epoch, checkpoint.attempt) for checkpoint in ran.records(0).checkpoints()]
    assert (saved[:2], saved[-1]) == ([(1, 1), (2, 2)], (4, 2)), "the pace decides whether the third is due"
    assert count_epochs(ran, 0) == [(epoch, 1) for epoch in (1, 2, 3, 4)]


def test_a_pod_that_cannot_start_says_why_on_its_trial_and_is_given_up_in_time(
    run: Callable[..., RanInPods],
) -> None:
    why: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "ImagePull": ({"image": "localhost/nowhere:1"}, {}),
        "Insufficient nvidia.com/gpu": ({"resources": {"gpus": 99}}, {}),
        'secret "nowhere" not found': ({}, {"env_secrets": ["nowhere"]}),
    }
    began = time.monotonic()
    noted = dict[str, float]()
    working = list[tuple[str, RanInPods, threading.Thread]]()
    for said, (changes, pods) in why.items():
        resources = {"start_timeout_seconds": 20, **changes.get("resources", {})}
        ran = run(pods, max_retries=0, **{**changes, "resources": resources})
        working.append((said, ran, ran.meanwhile(ran.work)))

    def all_noted() -> bool:
        for said, ran, _ in working:
            if said not in noted and said in str(ran.waiting()):
                noted[said] = time.monotonic() - began
        return noted.keys() == why.keys()

    working[0][1].wait_for(all_noted)
    for said, ran, work in working:
        work.join(60)
        row = ran.row()
        assert (row.status, row.attempt) == ("failed", 1)
        assert "did not start within resources.start_timeout_seconds = 20" in str(row.error)
        assert said in str(row.error)
        assert noted[said] < 20, "it is noted while it waits"
        assert all(pod.metadata.deletion_timestamp for pod in ran.pods())


@pytest.mark.parametrize(
    ("trainable", "said"),
    [
        ("nowhere:train", "trainable = 'nowhere:train' is not accepted: there is no module 'nowhere'"),
        ("in_image:nothing", "in_image has no function 'nothing'"),
        ("in_image:need_a_package", "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_what_is_missing_in_the_image_is_shown_on_the_trial(
    run: Callable[..., RanInPods], trainable: str, said: str
) -> None:
    ran = run(trainable=trainable, max_retries=0).work()
    assert ran.row().status == "failed"
    assert said in str(ran.row().error)


@pytest.mark.skipif(
    "HALVING_TEST_SDK_IMAGE" in os.environ, reason="the image of HALVING_TEST_SDK_IMAGE has the SDK"
)
def test_an_image_without_the_sdk_is_named_by_its_own_last_words(run: Callable[..., RanInPods]) -> None:
    ran = run({"env": {"PYTHONPATH": ""}, "volume_mounts": []}, max_retries=0).work()
    assert ran.row().status == "failed"
    assert "No module named 'halving'" in str(ran.row().error)


def test_the_pod_of_a_lost_attempt_is_gone_before_the_next_one_has_its_own(
    run: Callable[..., RanInPods], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 2.0)
    monkeypatch.setattr(leases, "DOUBT_SECONDS", 1.0)
    ran = run(trainable="in_image:train_slowly", strategy={"random": {"budget": 8}})
    assignment: Any = ran.scheduler.next_work("a-worker-that-dies:1")
    lost = ran.runner._processes.prepare(assignment, ran.runner._context(assignment))
    lost.start()
    ran.wait_for(lambda: lost.receive(0.1) or ran.records(0).checkpoints())
    together: list[set[str]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            together.append({pod.metadata.labels["halving/attempt"] for pod in ran.pods()})

    watching = ran.meanwhile(watch)
    ran.work()
    over.set()
    watching.join()
    row = ran.row()
    assert (row.status, row.attempt, row.preemptions) == ("completed", 2, 1), row.error
    assert {"1"} in together
    assert {"2"} in together
    assert {"1", "2"} not in together
    assert [saved.epoch for saved in ran.records(0).checkpoints() if saved.attempt == 2][-1] == 8


def test_a_rerun_in_the_recorded_image_is_identical_and_a_missing_image_is_named(
    run: Callable[..., RanInPods],
) -> None:
    ran = run(trainable="in_image:train_arrays", deterministic=True).work()
    key = f"{ran.sweep}.0000"
    store = ran.backend.store
    pods = rerun_pods()
    said = []
    options = Options(repository=Path("/nowhere"), strict=True)
    assert read_run(store, "small", key).record["provenance"]["image_digest"].startswith("sha256:"), (
        "the image is named by a tag"
    )
    verdict = rerun(store, "small", key, options, said.append, pods)
    assert (verdict.verdict, verdict.points, verdict.weights_equal) == ("identical", 4, True), said
    assert verdict.factors == []
    again = read_run(store, "small", verdict.run)
    assert (again.status, again.parent["rerun_of"]) == ("finished", f"small/{key}")
    assert again.record["provenance"]["image"] == ran.records(0).read()["provenance"]["image"]
    assert again.record["determinism"] == ran.records(0).read()["determinism"]
    assert store.names(f"runs/project=small/{verdict.run}/mail/0001") == []

    request = TrialRequest(
        recorded={}, context={"root": store.root}, trainable="m:train", epochs=1, threads=None
    )
    gone: dict[str, Any] = {
        "rerun_of": f"small/{key}",
        "project": "small",
        "run": "gone",
        "image": "localhost/nowhere:1",
    }
    assert pods is not None
    with pytest.raises(
        NotFound,
        match=(
            f"the image localhost/nowhere:1 of run small/{key} cannot be had by this cluster any more: .*Pull"
        ),
    ):
        pods.train(
            store,
            PodRerun(**gone, resources={"cpus": 0.25}, variables={}, request=request),
            lambda *_: None,
            said.append,
        )
    left = [pod for pod in ran.site.pods() if pod.metadata.labels.get("halving/pod") == "rerun"]
    assert all(pod.metadata.deletion_timestamp for pod in left)


def test_what_a_param_does_is_measured_by_reruns_in_pods_by_the_command(
    run: Callable[..., RanInPods], capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(trainable="in_image:train_arrays", max_trials=2, strategy={"random": {"budget": 2}}).work()
    trials = [f"{ran.sweep}.{number:04d}" for number in (0, 1)]
    root = ran.backend.store.root
    status = main(["why", *trials, "--root", root, "--rerun", "--repeat", "2", "--yes", "--json"])
    said = capsys.readouterr()
    assert status == 0, said.err
    explanation = json.loads(said.out)
    assert set(explanation["differs"]) == {"params", "seed"}
    (effect,) = explanation["attribution"]["effects"]
    assert (effect["name"], effect["error"]) == ("params", None)
    values = {arm["name"]: arm["values"] for arm in explanation["attribution"]["arms"]}
    assert all(len(each) == 2 for each in values.values())
    assert effect["effect"] == pytest.approx(sum(values["params"]) / 2 - sum(values["as it was"]) / 2)
    assert f"starting a pod of the image {ran.site.image}" in said.err
    left = [pod for pod in ran.site.pods() if pod.metadata.labels.get("halving/pod") == "rerun"]
    assert all(pod.metadata.deletion_timestamp for pod in left)
