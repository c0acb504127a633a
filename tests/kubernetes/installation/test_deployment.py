"""The deployment itself: what its pods may do, that runs become pods, and that parts of it may be unavailable
for a while.
"""

import json

import pytest
from kubernetes.client import AuthorizationV1Api

from server.identity.tokens import create_token
from tests.kubernetes.installation.harness import Installation
from tests.kubernetes.installation.specs import slow, spells, sweep_of

_RIGHTS_TRIED = (
    *("create pods", "delete pods", "create jobs", "delete jobs", "list events"),
    *("get secrets", "list secrets", "get nodes", "create pods/exec"),
)
_ENDS = {"delete pods", "delete jobs", "list events"}
_RIGHTS = {
    "halving-control": _ENDS | {"create jobs"},
    "halving-webserver": _ENDS,
    "halving-code": _ENDS,
    "halving-worker": _ENDS | {"create jobs", "create pods"},
    "halving-trial": set(),
}


def test_every_pod_runs_as_a_user_and_cannot_write_its_image(installation: Installation) -> None:
    pods = installation.pods("app.kubernetes.io/part-of=halving", phase="Running")
    assert len(pods) >= 3
    for pod in pods:
        output = installation.execute(
            pod.metadata.name,
            "sh",
            "-c",
            "id -u; touch /tmp/it && echo written; touch /usr/it || echo refused",
        )
        assert output.split() == ["1000", "written", "refused"], pod.metadata.name


@pytest.mark.parametrize("account", sorted(_RIGHTS))
def test_an_account_may_do_what_its_part_needs_and_no_more(installation: Installation, account: str) -> None:
    assert {right for right in _RIGHTS_TRIED if _may(installation, account, right)} == _RIGHTS[account]


def test_a_run_is_a_pod_of_its_own_whose_log_is_kept_in_the_object_store(installation: Installation) -> None:
    run = installation.submit("compact_metrics")
    installation.wait_for_run(run)
    [pod] = installation.pods(f"dagster/run-id={run}")
    assert pod.spec.service_account_name == "halving-worker"
    assert pod.spec.security_context.run_as_non_root
    assert pod.spec.containers[0].security_context.read_only_root_filesystem
    listed = installation.kubectl("get", "job", f"dagster-run-{run}", "-o", "json")
    assert json.loads(listed)["spec"]["ttlSecondsAfterFinished"] == 60
    kept = [
        entry
        for entry in installation.backend.store.filesystem.get_file_info(_below(installation.settings))
        if run in entry.path
    ]
    assert kept, "no log of the run below HALVING_LOGS_PREFIX"


def test_the_servers_replicas_answer_through_its_service_who_has_a_token(installation: Installation) -> None:
    # it does not start before there is one
    token = create_token(installation.backend.catalog, "tests", scope="read")
    with installation.awake("server", replicas=2):
        address = installation.core.read_namespaced_service("server", installation.namespace).spec.cluster_ip
        [asking] = installation.pods("app.kubernetes.io/component=code-location", phase="Running")
        answers = installation.execute(
            asking.metadata.name, "python3", "-c", _ASK, f"http://{address}", token
        )
    assert json.loads(answers) == {
        "/api/v1/health": [200, 200],
        "/api/v1/runs": [401, 200],
        "/runs/none/none": [200, 200],
    }


_ASK = """
import json, sys, urllib.error, urllib.request
address, token = sys.argv[1:]
def status(path, headers):
    try:
        request = urllib.request.Request(address + path, headers=headers)
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code
paths = ("/api/v1/health", "/api/v1/runs", "/runs/none/none")
signed = {"Authorization": "Bearer " + token}
print(json.dumps({path: [status(path, {}), status(path, signed)] for path in paths}))
"""


def test_the_sensors_tick_without_a_failure(installation: Installation) -> None:
    def ticks() -> dict[str, str]:
        states = installation.instance.all_instigator_state()
        last = {
            state.instigator_name: installation.instance.get_ticks(
                state.instigator_origin_id, state.selector_id, limit=1
            )
            for state in states
        }
        return {
            name: ticks_of_sensor[0].status.value for name, ticks_of_sensor in last.items() if ticks_of_sensor
        }

    expected = {"start_trials", "retry_crashed_trials", "stop_diverged_trials", "finish_sweeps"}
    installation.wait_for(lambda: expected <= ticks().keys(), "a tick of each sensor", seconds=60)
    assert "FAILURE" not in ticks().values()


def test_a_pool_holds_trials_back_in_the_queue_where_they_take_no_pod(installation: Installation) -> None:
    pools = installation.instance.event_log_storage
    pools.set_concurrency_slots("trials", 1)
    try:
        spec = slow("pooled", trials=2, epochs=3)
        peak = 0
        installation.wait_for_run(installation.submit("launch_sweep", spec))

        def over() -> bool:
            nonlocal peak
            pods = [
                pod
                for pod in installation.pods("dagster/job=run_trial")
                if pod.status.phase in ("Pending", "Running")
            ]
            # Where a run's step is over its place is free, although its pod is there for a moment more.
            runs = [
                installation.instance.get_run_stats(pod.metadata.labels["dagster/run-id"]) for pod in pods
            ]
            peak = max(peak, sum(not (stats.steps_succeeded or stats.steps_failed) for stats in runs))
            return sweep_of(installation.backend, spec["name"]).status == "finished"

        installation.wait_for(over, "the end of the sweep")
    finally:
        pools.delete_concurrency_limit("trials")
    assert peak == 1
    first, second = sorted(
        spells(installation.backend, sweep_of(installation.backend, spec["name"]).id),
        key=lambda spell: spell.begin,
    )
    assert first.end <= second.begin


def _may(installation: Installation, account: str, right: str) -> bool:
    verb, _, resource = right.partition(" ")
    resource, _, part = resource.partition("/")
    group = "batch" if resource == "jobs" else ""
    accounts = "system:serviceaccounts"
    spec = {
        "user": f"system:serviceaccount:{installation.namespace}:{account}",
        "groups": [accounts, f"{accounts}:{installation.namespace}", "system:authenticated"],
        "resourceAttributes": {
            "namespace": installation.namespace,
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": part,
        },
    }
    review = {"metadata": {"namespace": installation.namespace}, "spec": spec}
    reviews = AuthorizationV1Api(installation.core.api_client)
    return bool(
        reviews.create_namespaced_local_subject_access_review(installation.namespace, review).status.allowed
    )


def _below(settings: dict[str, str]):
    from pyarrow.fs import FileSelector

    return FileSelector(
        f"{settings['HALVING_LOGS_BUCKET']}/{settings['HALVING_LOGS_PREFIX']}", recursive=True
    )
