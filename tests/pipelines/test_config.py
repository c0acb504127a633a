"""The launchpad's schema is the spec's: same fields, same defaults, same descriptions, same refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster_k8s import k8s_job_executor

from pipelines.config import InvalidSweepSpec, config_schema, launch_config, sweep_config
from pipelines.definitions import defs
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import CHECKOUT, SMALL

# Every field of the spec, in each of the spellings that it has.
FULL = """
project: vision
priority: 3
metrics: [accuracy, roc_auc]
slices: [x, "x >= 0.5 and label == 'high'"]
evaluation_limits: {seconds: 60, memory: 2Gi}
serving: {seconds: 0, batch: 16}
objective: {metric: val_accuracy, direction: maximize, summary: average, window: 3}
other_objectives: [{metric: latency_ms, direction: minimize, summary: best}]
bounds: {latency_ms: {max: 20}, val_f1: {min: 0.1, max: 1}}
divergence: {train/loss: {max: 1000}}
space:
  lr: {float: {low: 1.0e-4, high: 0.1, log: true}}
  dropout: {float: {low: 0, high: 0.5, step: 0.1}}
  hidden: {int: {low: 16, high: 256, step: 16}}
  optimizer: {categorical: [adam, sgd, 3, true, 0.5]}
  momentum: {float: {low: 0.0, high: 0.99}, when: {optimizer: sgd}}
  nesterov: {categorical: [true, false], when: {optimizer: [sgd, 3], warmup: 3}}
  warmup: {constant: 3}
constraints: ["hidden * lr <= 8192", "momentum < 0.9 or lr < 0.01"]
strategy:
  optuna:
    sampler: "optuna.samplers:TPESampler"
    options: {n_startup_trials: 3, gamma: null, other: [1, {a: null}]}
    budget: 9
warm_start: [small-7f3a, small-80ab]
start_from: [{lr: 0.01, hidden: 64}, {optimizer: true}, {}]
training: {warmup_epochs: 3, lr_schedule: cosine, schedule_epochs: 27}
resources:
  {cpus: 0.5, gpus: 2, processes: 1, gpu_type: a100, memory: 2Gi, spot: true, nodes: {1: 1, 9: 4},
   priority_class: low, queue: team,
   grace_seconds: 5, start_timeout_seconds: 60}
elastic: {min_nodes: 2}
image: registry.example/train:1
max_trials: 40
max_preemptions: 3
max_failed_trials: 2
gates:
  - lineage
  - leakage: {accept: [x]}
  - non_inferior: {metric: accuracy, margin: 0.01}
  - bounds: {metric: accuracy, min: 0.5}
exporter: examples.digits:export
approval: {required: true, by: [ann, bob], at_least: 2}
auto_promote: true
final: {seeds: 2, on: [train, validation], epochs: 30}
deterministic: true
seed: 5
snapshot: sha256:AAA
restored_from: {project: small, run: small-7f3a.0007, epoch: 3, checkpoint: sha256:AAA}
""".replace("AAA", 64 * "a")


def resolve_config(mapping: dg.ConfigMapping, config: dict[str, Any]) -> dict[str, Any]:
    """What Dagster gives to the first op for a config."""

    @dg.op(name="take_snapshot", config_schema={"spec": dg.Permissive()})
    def probe(context: dg.OpExecutionContext) -> dict[str, Any]:
        return context.op_config["spec"]

    @dg.job(config=mapping, executor_def=k8s_job_executor if load_cluster() else dg.multiprocess_executor)
    def job() -> None:
        probe()

    return dg.validate_run_config(job, config)["ops"]["take_snapshot"]["config"]["spec"]


def test_the_yaml_that_ships_means_the_same_in_the_launchpad_and_to_the_spec() -> None:
    data = yaml.safe_load((CHECKOUT / "sweeps" / "digits.yaml").read_text())
    assert parse_spec(resolve_config(sweep_config, data)) == parse_spec(data)


def test_defaults_filled_in_by_dagster_are_the_specs_own() -> None:
    assert parse_spec(resolve_config(launch_config, SMALL)) == parse_spec(SMALL)


def test_a_spec_that_uses_every_field_passes_through_the_launchpad_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster.yaml").write_text("gpu_types: {a100: {}}\nspot: {}\n")
    monkeypatch.setenv("HALVING_CLUSTER", str(tmp_path / "cluster.yaml"))
    data = {**SMALL, **yaml.safe_load(FULL)}
    assert {*data, "evaluator"} == set(SweepSpec.model_fields), "all but what takes the predictor's place"
    for mapping in (sweep_config, launch_config):
        assert parse_spec(resolve_config(mapping, data)) == parse_spec(data)


@pytest.mark.parametrize(
    "change",
    [
        {"predictor": None, "evaluator": "tests.predictors:evaluate", "evaluation_limits": {"memory": None}},
        {"warm_start": "auto", "strategy": {"tpe": {}}},
        {"warm_start": None},
        {"strategy": {"grid": {"points": None}}, "space": {"n": {"int": {"low": 1, "high": 3}}}},
        {
            "training": {"warmup_epochs": None, "lr_schedule": None, "schedule_epochs": None},
            "gates": [{"leakage": None}, {"non_inferior": {"metric": None}}],
        },
        {
            "space": {
                "a": {"constant": None},
                "b": {"categorical": [None, [1, None], {"c": None, "d": {}}, []], "when": {"a": None}},
            }
        },
        {
            "space": {
                "a": {"constant": {"b": None}},
                "c": {"constant": [[None]], "when": {"a": [{"b": None}]}},
            }
        },
        {"space": {"a": {"categorical": [None, 1]}}, "start_from": [{"a": None}]},
        {
            "objective": {"metric": "score", "direction": "maximize", "window": None},
            "bounds": {"score": {"min": 0, "max": None}},
        },
    ],
)
def test_null_and_auto_mean_the_same_in_the_launchpad_and_to_the_spec(change: dict[str, Any]) -> None:
    assert parse_spec(resolve_config(launch_config, {**SMALL, **change})) == parse_spec({**SMALL, **change})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"space": {"a": {"categorical": [1, None, None]}}}, r"space\.a.*null is there twice"),
        ({"space": {"a": {"categorical": [1], "when": {"b": None}}}}, r"space\.a\.when\.b = \[None\]"),
        ({"start_from": [{"x": None}]}, r"start_from\.0 is not accepted: x = None"),
        # Dagster's YAML 1.1 reads 1e-3 as a text.
        (
            {"space": {"a": {"categorical": yaml.safe_load("[1e-3, 1]")}}},
            r"space\.a\.categorical\.0 = '1e-3'.*write the number as 0\.001",
        ),
        ({"warm_start": 3}, r"warm_start = 3 is not accepted: give auto, or a list"),
    ],
)
def test_a_value_that_dagster_does_not_check_is_refused_in_the_specs_own_words(
    change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSweepSpec, match=said):
        resolve_config(sweep_config, {**SMALL, **change})


def test_every_field_has_a_description_and_dagster_shows_it() -> None:
    def check(schema: dict[str, dg.Field], path: str) -> int:
        for name, field in schema.items():
            assert field.description, f"{path}{name} has no description"
        return len(schema) + sum(
            check(_fields_inside(field.config_type), f"{path}{name}.") for name, field in schema.items()
        )

    assert check(config_schema(SweepSpec), "") > 100


def _fields_inside(kind: Any) -> dict[str, dg.Field]:
    """The fields of a shape or selector, of a list or map of them, or of what may be null."""
    while not hasattr(kind, "fields") and hasattr(kind, "inner_type"):
        kind = kind.inner_type
    return getattr(kind, "fields", None) or {}


@pytest.mark.parametrize(
    "kind",
    [
        {"random": {"budget": 3}},
        {"grid": {"budget": 3, "points": 4}},
        {"tpe": {"budget": 3}},
        {"gp": {}},
        {"nsga2": {"population_size": 4}},
        {"optuna": {"sampler": "optuna.samplers:QMCSampler"}},
        {"asha": {"sampler": "optuna.samplers:CmaEsSampler", "options": {"sigma0": 0.1}, "audit": 0.1}},
        {"hyperband": {"sampler": "random", "reduction_factor": 4}},
        {"bohb": {"audit": 1}},
        {"median": {"min_trials": 3, "quantile": 0.25, "interval": 2}},
    ],
)
def test_every_strategy_passes_through_the_launchpad(kind: dict[str, Any]) -> None:
    assert parse_spec(resolve_config(launch_config, {**SMALL, "strategy": kind})) == parse_spec(
        {**SMALL, "strategy": kind}
    )


def test_a_wrong_type_is_refused_by_the_launchpad_itself() -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="max_trials"):
        resolve_config(launch_config, {**SMALL, "max_trials": "many"})


def test_an_unknown_field_is_refused_by_the_launchpad_itself() -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="concurency"):
        resolve_config(launch_config, {**SMALL, "concurency": 2})


def test_a_spec_that_cannot_work_is_refused_in_the_specs_own_words(
    small: Callable[..., dict[str, Any]],
) -> None:
    wrong = small(space={"x": {"float": {"low": 1.0, "high": 0.5}}})
    for job in ("sweep", "launch_sweep"):
        with pytest.raises(
            InvalidSweepSpec, match=r"space\.x\.float is not accepted: low = 1\.0 must be below high = 0\.5"
        ):
            dg.validate_run_config(defs.resolve_job_def(job), wrong)


def test_more_than_the_machine_has_is_refused_before_anything_runs(
    small: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(
        InvalidSweepSpec, match=r"resources\.gpus = 8 is not accepted here: this machine has 0"
    ):
        dg.validate_run_config(defs.resolve_job_def("sweep"), small(resources={"gpus": 8}))
    with pytest.raises(InvalidSweepSpec, match=r"resources\.cpus = 500 is not accepted here"):
        dg.validate_run_config(
            defs.resolve_job_def("launch_sweep"), small(resources={"cpus": 500}, concurrency=64)
        )


def test_runs_that_sensors_launch_share_the_gpus_of_one_machine_out(
    small: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    dg.validate_run_config(
        defs.resolve_job_def("launch_sweep"), small(resources={"gpus": 1, "cpus": 0.1}, concurrency=2)
    )


def test_steps_on_a_cluster_do_not_go_with_their_coordinator(
    small: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster.yaml").write_text("")
    monkeypatch.setenv("HALVING_CLUSTER", str(tmp_path / "cluster.yaml"))
    execution = sweep_config.config_fn(resolve_config(launch_config, small()))["execution"]["config"]
    assert "enable_owner_references" not in execution
    assert set(execution["per_step_k8s_config"]) == {"work_on_trials"}
