"""The launchpad's schema is the spec's: same fields, same defaults, same descriptions, same refusals."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
import yaml

from pipelines.config import InvalidSweepSpec, config_schema, launch_config, sweep_config
from pipelines.definitions import defs
from resources.spec import SweepSpec, parse_spec
from tests.conftest import CHECKOUT, SMALL


def resolved(mapping: dg.ConfigMapping, config: dict[str, Any]) -> dict[str, Any]:
    """What Dagster gives to the first op for a config."""

    @dg.op(name="take_snapshot", config_schema={"spec": dg.Permissive()})
    def probe(context: dg.OpExecutionContext) -> dict[str, Any]:
        return context.op_config["spec"]

    @dg.job(config=mapping, executor_def=dg.multiprocess_executor)
    def job() -> None:
        probe()

    return dg.validate_run_config(job, config)["ops"]["take_snapshot"]["config"]["spec"]


def test_the_yaml_that_ships_means_the_same_in_the_launchpad_and_to_the_spec() -> None:
    data = yaml.safe_load((CHECKOUT / "sweeps" / "digits.yaml").read_text())
    assert parse_spec(resolved(sweep_config, data)) == parse_spec(data)


def test_defaults_filled_in_by_dagster_are_the_specs_own() -> None:
    assert parse_spec(resolved(launch_config, SMALL)) == parse_spec(SMALL)


def test_every_field_has_a_description_and_dagster_shows_it() -> None:
    def check(schema: dict[str, dg.Field], path: str) -> None:
        for name, field in schema.items():
            assert field.description, f"{path}{name} has no description"
            inner = getattr(field.config_type, "fields", None) or getattr(getattr(field.config_type, "inner_type", None), "fields", None)
            check(inner or {}, f"{path}{name}.")

    check(config_schema(SweepSpec), "")


@pytest.mark.parametrize("kind", [{"random": {"budget": 3}}, {"grid": {"budget": 3, "points": 4}}, {"asha": {"sampler": "random"}}])
def test_every_strategy_passes_through_the_launchpad(kind: dict[str, Any]) -> None:
    assert parse_spec(resolved(launch_config, {**SMALL, "strategy": kind})) == parse_spec({**SMALL, "strategy": kind})


def test_a_wrong_type_is_refused_by_the_launchpad_itself() -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="max_trials"):
        resolved(launch_config, {**SMALL, "max_trials": "many"})


def test_an_unknown_field_is_refused_by_the_launchpad_itself() -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="concurency"):
        resolved(launch_config, {**SMALL, "concurency": 2})


def test_a_spec_that_cannot_work_is_refused_in_the_specs_own_words(small: Callable[..., dict[str, Any]]) -> None:
    wrong = small(space={"x": {"float": {"low": 1.0, "high": 0.5}}})
    for job in ("sweep", "launch_sweep"):
        with pytest.raises(InvalidSweepSpec, match=r"space\.x\.float is not accepted: low = 1\.0 must be below high = 0\.5"):
            dg.validate_run_config(defs.resolve_job_def(job), wrong)


def test_more_than_the_machine_has_is_refused_before_anything_runs(
    small: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(InvalidSweepSpec, match=r"resources\.gpus = 8 is not accepted here: this machine has 0"):
        dg.validate_run_config(defs.resolve_job_def("sweep"), small(resources={"gpus": 8}))
