"""Sweeps on the cluster by both drivers: more trials than GPUs, and no two trials that run at a time on the
same one.
"""

import dagster as dg
import pytest

from resources.catalog.models import versions_of
from tests.kubernetes.installation.harness import Installation
from tests.kubernetes.installation.specs import (
    assert_exclusive,
    assert_nothing_lost,
    digits,
    pods_of,
    slow,
    spells,
    sweep_of,
    trials,
)

GPUS = 4


@pytest.mark.usefixtures("gpus")
def test_the_digits_sweep_runs_by_both_drivers_at_a_time_with_a_gpu_for_each_trial(
    installation: Installation,
) -> None:
    # One pod more than there are GPUs waits for its turn, and the other driver's pods want the same ones.
    by_sensors = digits(name="digits-by-sensors", concurrency=GPUS + 1)
    in_one_job = digits(name="digits-in-one-job", concurrency=2, max_trials=3)
    installation.submit("launch_sweep", by_sensors)
    job = installation.submit("sweep", in_one_job)
    installation.wait_for(
        lambda: has_finished(installation, "digits-by-sensors"), "the end of the sweep by sensors", every=2
    )
    installation.wait_for_run(job)

    sweeps = {
        name: sweep_of(installation.backend, name).id for name in ("digits-by-sensors", "digits-in-one-job")
    }
    planned = {spec["name"]: spec["max_trials"] for spec in (by_sensors, in_one_job)}
    assert planned["digits-by-sensors"] > GPUS
    spells_by_driver = {name: spells(installation.backend, sweep) for name, sweep in sweeps.items()}
    together = [spell for spells in spells_by_driver.values() for spell in spells]
    assert all(len(spell.gpus) == 1 for spell in together)
    assert_exclusive(together)
    for name, sweep in sweeps.items():
        assert len({spell.trial for spell in spells_by_driver[name]}) == planned[name]
        with installation.backend.catalog.read() as session:
            assert [version.sweep for version in versions_of(session, name)] == [sweep]
        materialized = installation.instance.fetch_materializations(dg.AssetKey("trial"), limit=1000).records
        keys = {record.partition_key for record in materialized if record.partition_key.startswith(sweep)}
        assert keys == {spell.trial for spell in spells_by_driver[name]}

    # By sensors: a run, and a pod, for each hand-out; a paused trial has none.
    sweep = sweeps["digits-by-sensors"]
    runs = installation.instance.get_runs(dg.RunsFilter(tags={"halving/sweep": sweep}, job_name="run_trial"))
    assert len(runs) == sum(trial.attempt for trial in trials(installation.backend, sweep))
    assert {run.status.value for run in runs} == {"SUCCESS"}

    # In one job: a pod for each place, and not for each trial.
    sweep = sweeps["digits-in-one-job"]
    assert len(pods_of(installation.backend, sweep)) <= 2
    assert installation.instance.get_run_by_id(job).tags["halving/sweep"] == sweep

    # What a worker's pod has trained is trained again in a pod of the platform's image, which is its code: it
    # has no commit.
    installation.wait_for_run(
        installation.submit("rerun", {"ops": {"train_again": {"config": {"run": f"{sweep}.0000"}}}})
    )
    again = dg.AssetRecordsFilter(asset_key=dg.AssetKey("trial"), asset_partitions=[f"{sweep}.0000"])
    (observed,) = installation.instance.fetch_observations(again, limit=1).records  # the newest
    assert observed.asset_observation.metadata["rerun"].value == "identical"
    # Deleted before the verdict was observed; a busy node takes up to the grace period to end what is in it.
    installation.wait_for(
        lambda: not installation.pods("halving/pod=rerun", phase="Running"), "the end of the rerun's pod"
    )


def test_trials_in_an_image_of_their_own_run_by_both_drivers_in_pods_without_rights(
    installation: Installation,
) -> None:
    specs = {
        job: slow(f"image-{job}".replace("_", "-"), epochs=4, image=installation.image.name)
        for job in ("launch_sweep", "sweep")
    }
    runs = {job: installation.submit(job, spec) for job, spec in specs.items()}
    pods_seen = {}

    def each_has_a_pod() -> bool:
        for job, spec in specs.items():
            if sweep := sweep_of(installation.backend, spec["name"]):
                for pod in installation.pods(f"halving/sweep={sweep.id},halving/pod=trial"):
                    pods_seen[job] = pod
        return pods_seen.keys() == specs.keys()

    installation.wait_for(each_has_a_pod, "the pod of a trial, by each driver")
    installation.wait_for_run(runs["sweep"])
    for job, spec in specs.items():
        installation.wait_for(
            lambda name=spec["name"]: has_finished(installation, name), f"the end of {spec['name']}", every=1
        )
        assert_nothing_lost(installation.backend, sweep_of(installation.backend, spec["name"]).id)
        pod = pods_seen[job]
        assert pod.spec.service_account_name == "halving-trial"
        assert [owner.kind for owner in pod.metadata.owner_references] == ["Pod"], "it goes with its worker"
        manifest = installation.core.api_client.sanitize_for_serialization(pod)
        assert "halving-database" not in str(manifest)
        assert "HALVING_CATALOG" not in str(manifest)


def has_finished(installation: Installation, name: str) -> bool:
    sweep = sweep_of(installation.backend, name)
    return sweep is not None and sweep.status == "finished"
