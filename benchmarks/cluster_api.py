"""What a run costs Kubernetes' API: the time of its Job's calls, and the bytes that are kept of it."""

import json
import os
import secrets
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, number

JOBS = 100
THREADS = (1, 16)
_TEXT = f"""
Jobs as Dagster's `K8sRunLauncher` makes them, for a node that does not exist, so that their pods wait and
nothing is started: {JOBS} with each number of threads, in a namespace of their own on the cluster that
`KUBECONFIG` names. *Kept* are the bytes of the Job and of its pod as the API answers them in JSON, before the
pod has run.
"""


def measure(setting: Setting) -> Part:
    """Measure milliseconds of a call, calls a second, and the bytes of the objects."""
    part = Part("cluster", "A run in Kubernetes' API", _TEXT)
    if not os.environ.get("KUBECONFIG"):
        part.missing.append("Kubernetes: KUBECONFIG is not set")
        return part
    table = Table(
        [
            "threads",
            "create a Job, p50 ms",
            "p99, ms",
            "Jobs/s",
            "read a Job, p50 ms",
            "delete, p50 ms",
            "KB kept",
        ],
        [],
    )
    for threads in THREADS[: setting.choose(1, 2)]:
        figures = in_child("benchmarks.cluster_api:calls", jobs=setting.choose(4, JOBS), threads=threads)
        table.rows.append(
            [
                str(threads),
                *(
                    number(figures[name])
                    for name in ("create", "create_p99", "rate", "read", "delete", "kept")
                ),
            ]
        )
    part.tables.append(table)
    return part


def calls(jobs: int, threads: int) -> dict[str, float]:
    """Create, read and delete so many Jobs, in a process of its own."""
    from kubernetes import client, config

    settings = client.Configuration()
    config.load_kube_config(client_configuration=settings)
    # a thread without a connection of the pool would make one for each call
    settings.connection_pool_maxsize = threads
    api = client.ApiClient(settings)
    batch = client.BatchV1Api(api)
    core = client.CoreV1Api(api)
    namespace = f"halving-bench-{secrets.token_hex(3)}"
    core.create_namespace({"metadata": {"name": namespace}})
    try:
        names = [f"dagster-run-{number:06d}" for number in range(jobs)]
        manifests = [_manifest(name) for name in names]
        began = time.perf_counter()
        created = _time_calls(
            threads, lambda manifest: batch.create_namespaced_job(namespace, manifest), manifests
        )
        seconds = time.perf_counter() - began
        read = _time_calls(threads, lambda name: batch.read_namespaced_job(name, namespace), names)
        time.sleep(2.0)  # for the pods to be made
        answer = [
            batch.list_namespaced_job(namespace, _preload_content=False).data,
            core.list_namespaced_pod(namespace, _preload_content=False).data,
        ]
        kept = sum(
            len(json.dumps(item)) / len(items)
            for items in (json.loads(each)["items"] for each in answer)
            for item in items
        )
        deleted = _time_calls(
            threads,
            lambda name: batch.delete_namespaced_job(name, namespace, propagation_policy="Background"),
            names,
        )
    finally:
        core.delete_namespace(namespace)
    spent = {"create": created, "read": read, "delete": deleted}
    p99 = sorted(created)[int(0.99 * jobs)]
    return {name: statistics.median(each) for name, each in spent.items()} | {
        "create_p99": p99,
        "rate": jobs / seconds,
        "kept": kept / 1000,
    }


def _time_calls(threads: int, call: Callable[[Any], Any], each: list[Any]) -> list[float]:
    """Milliseconds of each call."""

    def time_call(argument: Any) -> float:
        began = time.perf_counter()
        call(argument)
        return 1000 * (time.perf_counter() - began)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(time_call, each))


def _manifest(name: str) -> Any:
    from dagster_k8s.job import DagsterK8sJobConfig, UserDefinedDagsterK8sConfig, construct_dagster_k8s_job

    settings = DagsterK8sJobConfig(
        job_image="localhost/python:3.11", dagster_home="/opt/dagster/home", image_pull_policy="IfNotPresent"
    )
    nowhere = UserDefinedDagsterK8sConfig.from_dict(
        {"pod_spec_config": {"node_selector": {"halving/nowhere": "true"}}}
    )
    # as long as a real run's
    arguments = ["dagster", "api", "execute_run", json.dumps({"run": name, "padding": "x" * 1_500})]
    return construct_dagster_k8s_job(
        settings, arguments, name, nowhere, env_vars=[{"name": "DAGSTER_RUN_JOB_NAME", "value": "run_trial"}]
    )
