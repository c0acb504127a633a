"""What deploy/ holds: that it builds, that Dagster and we accept its settings, and that its pods may do
little.
"""

import re
import shutil
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._config import validate_config
from dagster._core.instance.ref import InstanceRef
from dagster_k8s import K8sRunLauncher

from pipelines.postgres_storage import PooledPostgresStorage
from resources.execution.kubernetes.cluster_config import ClusterConfig
from resources.execution.kubernetes.gang_manifests import GANG_LABEL, gang_policies
from resources.execution.kubernetes.pod_manifests import POD_OF_RERUN, POD_OF_TRIAL
from server.settings import Settings
from server.state import CATALOG_PATIENCE
from tests.backends import CHECKOUT
from tests.deploy import kubectl
from tests.deploy.manifests import DEPLOY, KUBERNETES

_WORKLOADS = {"Deployment", "StatefulSet"}
_TRAIN = [
    {"halving/trial": "a.0001"},
    {"app.kubernetes.io/component": "run_worker"},
    {"app.kubernetes.io/component": "step_worker"},
]
_KUBECTL = pytest.mark.skipif(bool(kubectl.unusable()), reason=kubectl.unusable() or "")


@pytest.fixture(params=["example", "example with its components"])
def manifests(request: pytest.FixtureRequest, tmp_path: Path) -> list[dict[str, Any]]:
    """All objects of the example as a user would apply it, and with every component of ours."""
    folder = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, folder)
    if request.param != "example":
        path = folder / "example" / "kustomization.yaml"
        path.write_text(path.read_text() + "components: [../postgres, ../availability]\n")
    return _build(folder / "example")


@pytest.mark.slow
@_KUBECTL
def test_the_example_builds_into_one_namespace_and_current_apis(manifests: list[dict[str, Any]]) -> None:
    assert {item["metadata"].get("namespace", "halving") for item in manifests} == {"halving"}
    assert not [item["apiVersion"] for item in manifests if "beta" in item["apiVersion"]]
    names = {(item["kind"], item["metadata"]["name"]) for item in manifests}
    assert {("Deployment", name) for name in ("webserver", "daemon", "code-location", "server")} <= names


@pytest.mark.slow
@_KUBECTL
def test_every_container_is_a_user_without_rights_in_an_image_that_it_cannot_write(
    manifests: list[dict[str, Any]],
) -> None:
    for name, pod, container in _containers(manifests):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] > 0, name
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True, name
        assert context["allowPrivilegeEscalation"] is False, name
        assert context["capabilities"] == {"drop": ["ALL"]}, name


@pytest.mark.slow
@_KUBECTL
def test_every_container_says_what_it_needs_and_what_its_memory_may_be(
    manifests: list[dict[str, Any]],
) -> None:
    for name, _, container in _containers(manifests):
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
        assert "memory" in container["resources"]["limits"], name
        assert "livenessProbe" in container, name


@pytest.mark.slow
@_KUBECTL
def test_runs_are_started_from_the_image_that_the_code_location_has(manifests: list[dict[str, Any]]) -> None:
    for name, _, container in _containers(manifests):
        if not name.startswith("postgres"):
            env = {entry["name"]: entry.get("value") for entry in container["env"]}
            assert env["DAGSTER_CURRENT_IMAGE"] == container["image"], name
            assert "@sha256:" in container["image"]


@pytest.mark.slow
@_KUBECTL
def test_roles_stay_in_the_namespace_and_give_no_secret_and_no_wildcard(
    manifests: list[dict[str, Any]],
) -> None:
    assert not [item for item in manifests if item["kind"].startswith("Cluster")]
    for rule in [rule for item in manifests if item["kind"] == "Role" for rule in item["rules"]]:
        assert "*" not in rule["resources"] + rule["verbs"] + rule["apiGroups"]
        assert not {"secrets", "pods/exec", "roles", "rolebindings", "serviceaccounts/token"} & set(
            rule["resources"]
        )


@pytest.mark.slow
@_KUBECTL
def test_each_account_may_do_what_the_documentation_says_and_no_more(manifests: list[dict[str, Any]]) -> None:
    roles = {item["metadata"]["name"]: item["rules"] for item in manifests if item["kind"] == "Role"}
    granted: dict[str, dict[str, set[str]]] = {
        item["metadata"]["name"]: defaultdict(set) for item in manifests if item["kind"] == "ServiceAccount"
    }
    for binding in [item for item in manifests if item["kind"] == "RoleBinding"]:
        for rule in roles[binding["roleRef"]["name"]]:
            for subject, resource in [
                (subject, resource) for subject in binding["subjects"] for resource in rule["resources"]
            ]:
                granted[subject["name"]][resource] |= set(rule["verbs"])
    table = re.findall(
        r"^\| `(halving-\w+)` \| .*? \| (.*) \|$", (CHECKOUT / "docs" / "deploy.md").read_text(), re.MULTILINE
    )
    documented = {
        account: {
            resource: set(verbs.split(", "))
            for resource, verbs in re.findall(r"([\w/]+): ([a-z, ]+)", rights)
        }
        for account, rights in table
    }
    assert documented == granted


@pytest.mark.slow
@_KUBECTL
def test_every_part_has_an_account_of_its_own(manifests: list[dict[str, Any]]) -> None:
    accounts = [
        pod["serviceAccountName"]
        for name, pod, _ in _containers(manifests)
        if not name.startswith("postgres")
    ]
    assert sorted(accounts) == ["halving-code", "halving-control", "halving-server", "halving-webserver"]


@pytest.mark.slow
@_KUBECTL
def test_webserver_and_daemon_know_no_catalog(manifests: list[dict[str, Any]]) -> None:
    for name, _, container in _containers(manifests):
        if name.startswith(("webserver", "daemon")):
            assert "halving-database" not in [
                source["secretRef"]["name"] for source in container["envFrom"] if "secretRef" in source
            ]
            keys = [
                entry["valueFrom"]["secretKeyRef"]["key"]
                for entry in container["env"]
                if "secretKeyRef" in entry.get("valueFrom", {})
            ]
            assert keys == ["DAGSTER_POSTGRES_URL"]


@pytest.mark.slow
@_KUBECTL
def test_the_server_asks_for_tokens_and_knows_nothing_of_dagsters_database(
    manifests: list[dict[str, Any]],
) -> None:
    ((_, pod, container),) = [named for named in _containers(manifests) if named[0].startswith("server/")]
    (deployment,) = [
        item for item in manifests if item["kind"] == "Deployment" and item["metadata"]["name"] == "server"
    ]
    # Specs are checked against the cluster that Dagster knows, not against the server's own pod.
    assert {"name": "HALVING_CLUSTER", "value": "/etc/halving/cluster.yaml"} in container["env"]
    assert {"name": "cluster", "mountPath": "/etc/halving"} in container["volumeMounts"]
    assert deployment["spec"]["replicas"] >= 2
    assert pod["automountServiceAccountToken"] is False
    keys = [
        entry["valueFrom"]["secretKeyRef"]["key"]
        for entry in container["env"]
        if "secretKeyRef" in entry.get("valueFrom", {})
    ]
    assert keys == ["HALVING_CATALOG"]
    assert [source["secretRef"]["name"] for source in container["envFrom"] if "secretRef" in source] == [
        "halving-store"
    ]
    command = container["command"]
    assert command[:2] == ["halving", "serve"]
    assert Settings(host=command[command.index("--host") + 1]).asks_for_tokens
    assert {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")} == {
        "/api/v1/health"
    }
    assert container["readinessProbe"]["httpGet"]["path"] == "/api/v1/ready"
    assert container["readinessProbe"]["timeoutSeconds"] > CATALOG_PATIENCE
    (service,) = [
        item for item in manifests if item["kind"] == "Service" and item["metadata"]["name"] == "server"
    ]
    assert service["spec"].get("type", "ClusterIP") == "ClusterIP"


@pytest.mark.slow
@_KUBECTL
def test_what_trains_reaches_neither_the_webserver_nor_the_code_location(
    manifests: list[dict[str, Any]],
) -> None:
    policies = {
        item["metadata"]["name"]: item["spec"] for item in manifests if item["kind"] == "NetworkPolicy"
    }
    for component in ("webserver", "code-location", "server"):
        assert not [labels for labels in _TRAIN if _admits(policies[component], labels)]
        assert policies[component]["podSelector"]["matchLabels"] == {"app.kubernetes.io/component": component}
    assert _admits(policies["webserver"], {"app": "oauth2-proxy"})
    assert _admits(policies["code-location"], {"app.kubernetes.io/component": "webserver"})
    if "postgres" in policies:  # for runs, which know the catalog; not for trials in images of their own
        assert _admits(
            policies["postgres"], {"app.kubernetes.io/component": "step_worker", "halving/trial": "a.0001"}
        )
        assert not _admits(policies["postgres"], {"halving/trial": "a.0001"})


@pytest.mark.slow
@_KUBECTL
def test_what_trains_takes_no_connection_but_those_of_its_own_gang(manifests: list[dict[str, Any]]) -> None:
    policies = {
        item["metadata"]["name"]: item["spec"] for item in manifests if item["kind"] == "NetworkPolicy"
    }
    (trials,) = policies["trials"]["podSelector"]["matchExpressions"]
    assert (trials["operator"], [{trials["key"]: value} for value in trials["values"]]) == (
        "In",
        [POD_OF_TRIAL, POD_OF_RERUN],
    )
    assert (policies["trials"]["policyTypes"], "ingress" in policies["trials"]) == (["Ingress"], False)
    (workers,) = policies["workers"]["podSelector"]["matchExpressions"]
    assert (workers["operator"], set(workers["values"])) == ("In", {"run_worker", "step_worker"})
    assert "ingress" not in policies["workers"]
    worker = {"app.kubernetes.io/component": "step_worker", "job-name": "j", "controller-uid": "u"}
    among, store = [policy["spec"] for policy in gang_policies("halving-a-0001-a1", 4711, None, worker)]
    own = {GANG_LABEL: "halving-a-0001-a1"}
    other = {GANG_LABEL: "halving-a-0002-a1"}
    single = {"halving/trial": "a.0003"}
    for policy in (among, store):
        assert [_admits(policy, labels) for labels in (own, other, single, worker)] == [
            True,
            False,
            False,
            False,
        ]
    assert among["podSelector"]["matchLabels"] == own
    assert (store["podSelector"]["matchLabels"], store["ingress"][0]["ports"]) == (
        worker,
        [{"protocol": "TCP", "port": 4711}],
    )


@pytest.mark.slow
@_KUBECTL
def test_the_patches_that_the_documentation_shows_are_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, folder)
    page = (CHECKOUT / "docs" / "deploy.md").read_text()
    path = folder / "example" / "kustomization.yaml"
    overlay = yaml.safe_load(path.read_text())
    (annotated,) = re.findall(r"```yaml\n( *patches:.*?)```", page, re.DOTALL)
    (admitted,) = re.findall(r"`- (\{op: add, path: /spec/ingress/.*\})`", page)
    policy = {
        "target": {"kind": "NetworkPolicy", "name": "webserver"},
        "patch": yaml.safe_dump([yaml.safe_load(admitted)]),
    }
    path.write_text(yaml.safe_dump({**overlay, "patches": [*yaml.safe_load(annotated)["patches"], policy]}))
    built = _build(folder / "example")
    for account in [item for item in built if item["kind"] == "ServiceAccount"]:
        assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
    (webserver,) = [
        item for item in built if item["kind"] == "NetworkPolicy" and item["metadata"]["name"] == "webserver"
    ]
    assert "ipBlock" in webserver["spec"]["ingress"][0]["from"][-1]


@pytest.mark.slow
@_KUBECTL
def test_what_a_pod_names_exists_or_is_a_secret_that_the_user_makes(manifests: list[dict[str, Any]]) -> None:
    there = {item["metadata"]["name"] for item in manifests if item["kind"] == "ConfigMap"}
    accounts = {item["metadata"]["name"] for item in manifests if item["kind"] == "ServiceAccount"}
    launcher = _instance()["run_launcher"]["config"]
    named = set(launcher["env_config_maps"])
    secrets = set(launcher["env_secrets"])
    named |= {
        volume["config_map"]["name"]
        for volume in launcher["run_k8s_config"]["pod_spec_config"]["volumes"]
        if "config_map" in volume
    }
    for _, pod, container in _containers(manifests):
        named |= {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
        named |= {
            source["configMapRef"]["name"]
            for source in container.get("envFrom", [])
            if "configMapRef" in source
        }
        secrets |= {
            source["secretRef"]["name"] for source in container.get("envFrom", []) if "secretRef" in source
        }
        secrets |= {
            entry["valueFrom"]["secretKeyRef"]["name"]
            for entry in container["env"]
            if "secretKeyRef" in entry.get("valueFrom", {})
        }
        assert pod.get("serviceAccountName") in {*accounts, None}
    for settings in _cluster_settings():
        named |= set(settings.trial_pods.env_config_maps)
        secrets |= set(settings.trial_pods.env_secrets)
        assert settings.trial_pods.service_account in accounts
    assert named <= there
    assert secrets == {"halving-database", "halving-store"}
    assert launcher["service_account_name"] in accounts


def test_dagster_accepts_the_instance() -> None:
    # Loaded as Dagster does, but for what needs a server to connect to, whose own schema is asked instead.
    reference = InstanceRef.from_dir(str(KUBERNETES / "base"))
    for part, kind in (
        (reference.run_launcher_data, K8sRunLauncher),
        (reference.storage_data, PooledPostgresStorage),
    ):
        assert part is not None
        assert part.class_name == kind.__name__
        assert validate_config(kind.config_type(), yaml.safe_load(part.config_yaml)).success
    assert reference.settings["run_monitoring"]["max_resume_run_attempts"] > 0
    assert reference.settings["telemetry"] == {"enabled": False}


def test_a_run_waits_longer_for_its_pod_than_a_sweep_does() -> None:
    from resources.sweep_spec.requirements import Resources

    assert _instance()["run_monitoring"]["start_timeout_seconds"] > 2 * Resources().start_timeout_seconds


def test_the_settings_of_the_cluster_are_accepted() -> None:
    base, example = _cluster_settings()
    assert base.trial_pods.service_account == "halving-trial"
    assert {"a100", "h100"} <= example.gpu_types.keys()
    assert example.spot.node_selector


def test_no_secret_is_in_deploy() -> None:
    secret = re.compile(
        r"(?i)(password|secret_access_key|secret|token)\w*['\"]?\s*[:=]\s*['\"]?[a-z0-9+/_-]{8,}"
    )
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            assert "kind: Secret" not in path.read_text(), path
            assert not secret.findall(path.read_text()), path


def test_what_we_build_on_is_pinned_by_its_digest() -> None:
    bases = [
        line
        for path in DEPLOY.glob("Containerfile*")
        for line in path.read_text().splitlines()
        if line.startswith("ARG BASE=")
    ]
    images = re.findall(r"image: (docker\.io/.*)", (KUBERNETES / "postgres" / "postgres.yaml").read_text())
    assert len(bases) == 2
    assert len(images) == 1
    assert all(re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", pinned) for pinned in [*bases, *images])


def test_the_image_has_every_package_of_ours() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE))
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    packages = {
        pattern.rstrip("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    assert copied == {*packages, "sdk", "examples", "sweeps", "features"}
    assert all((CHECKOUT / folder).is_dir() for folder in copied)


def _build(folder: Path) -> list[dict[str, Any]]:
    """All objects of a kustomization."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def _admits(policy: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a network policy of ours lets pods with these labels in."""
    (ingress,) = policy["ingress"]
    return any(
        source["podSelector"].get("matchLabels", {}).items() <= labels.items()
        and all(
            _matches(labels, expression) for expression in source["podSelector"].get("matchExpressions", [])
        )
        for source in ingress["from"]
        if "podSelector" in source
    )


def _matches(labels: dict[str, str], expression: dict[str, Any]) -> bool:
    value = labels.get(expression["key"])
    return {
        "In": lambda: value in expression["values"],
        "NotIn": lambda: value not in expression["values"],
        "DoesNotExist": lambda: value is None,
    }[expression["operator"]]()


def _containers(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for item in manifests:
        if item["kind"] in _WORKLOADS:
            pod = item["spec"]["template"]["spec"]
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                yield f"{item['metadata']['name']}/{container['name']}", pod, container


def _instance() -> dict[str, Any]:
    return yaml.safe_load((KUBERNETES / "base" / "dagster.yaml").read_text())


def _cluster_settings() -> list[ClusterConfig]:
    return [
        ClusterConfig.model_validate(yaml.safe_load((KUBERNETES / name / "cluster.yaml").read_text()))
        for name in ("base", "example")
    ]
