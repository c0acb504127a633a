"""The sweep spec in Dagster's launchpad: its config schema follows from the pydantic model."""

import json
from datetime import datetime
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import dagster as dg
from pydantic import BaseModel, BeforeValidator, PlainValidator
from pydantic.fields import FieldInfo

from halving import InvalidInput, Store
from resources.catalog.opening import open_catalog
from resources.execution.concurrency import concurrency_of
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.execution.kubernetes.pod_manifests import worker_config
from resources.sweep_spec import SweepSpec, parse_spec
from resources.sweep_spec.base import OneOf


class InvalidSweepSpec(dg.DagsterInvalidConfigError):
    """A spec that passed Dagster's check of types, and is wrong.

    It is a Dagster error, because Dagster wraps any other error in a message about config mappings.
    """

    def __init__(self, message: str) -> None:
        dg.DagsterError.__init__(self, message)


def config_schema(model: type[BaseModel]) -> dict[str, dg.Field]:
    """A Dagster config schema with the descriptions and defaults of a pydantic model's fields."""
    return {field.alias or name: _field(field) for name, field in model.model_fields.items()}


def check_launch(spec: dict[str, Any]) -> None:
    """Check a spec as the job ``launch_sweep`` does before it begins.

    Raises:
        InvalidSweepSpec: the job would refuse the spec.
    """
    _launch_config(spec)


def _job_config(config: dict[str, Any]) -> dict[str, Any]:
    spec, concurrency = _spec_and_concurrency(config, trains=True)
    execution: dict[str, Any] = {"max_concurrent": concurrency}
    if cluster := load_cluster():
        of_project = cluster.of_project(spec.project, lambda: open_catalog(Store()))
        worker = worker_config(spec, of_project, labels={})
        # The coordinator's pod does not own the steps: they train on while it is replaced. A sensor ends the
        # steps of a run that is over.
        execution["per_step_k8s_config"] = {"work_on_trials": worker}
    return {"execution": {"config": execution}, **_snapshot_config(spec)}


def _launch_config(config: dict[str, Any]) -> dict[str, Any]:
    # Whether the platform trains is checked by the run, which knows for whom it opens the sweep.
    spec, _ = _spec_and_concurrency(config, trains=False)
    return _snapshot_config(spec)


def _snapshot_config(spec: SweepSpec) -> dict[str, Any]:
    config = {"spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True)}
    return {"ops": {"take_snapshot": {"config": config}}}


def _spec_and_concurrency(config: dict[str, Any], *, trains: bool) -> tuple[SweepSpec, int]:
    try:
        spec = _parse(json.dumps(config), trains)
        return spec, concurrency_of(spec)
    except InvalidInput as error:
        raise InvalidSweepSpec(str(error)) from None


@lru_cache(maxsize=8)
def _parse(config: str, trains: bool) -> SweepSpec:
    """Parse a spec; cached, because Dagster maps the config of a run several times in every process."""
    return parse_spec(json.loads(config), trains=trains)


def _field(field: FieldInfo) -> dg.Field:
    description = field.description or ""
    if field.is_required():
        return dg.Field(_type(field.annotation), description=description)
    # Such a default follows from other fields.
    if field.default_factory_takes_validated_data:
        return dg.Field(_type(field.annotation), description=description, is_required=False)
    default = field.get_default(call_default_factory=True)
    if default is None:
        return dg.Field(_type(field.annotation), description=description, is_required=False)
    return dg.Field(_type(field.annotation), description=description, default_value=_as_json(default))


def _as_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_json(entry) for entry in value]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


def _type(annotation: Any) -> Any:
    """The Dagster config type for an annotation of the spec.

    Where the spec accepts several types (a value of any kind, one choice or a list of them), Dagster accepts
    anything, and the spec checks it.
    """
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        if any(isinstance(mark, BeforeValidator | PlainValidator) for mark in arguments[1:]):
            return dg.Any
        return _type(arguments[0])
    if origin in (Union, UnionType):
        inner = [argument for argument in arguments if argument is not NoneType]
        if len(inner) > 1:
            return dg.Any
        inner_type = _type(inner[0])
        # A model may be left out; null would be a second way to say so.
        if inner_type is dg.Any or isinstance(inner_type, dg.Shape | dg.Selector):
            return inner_type
        return dg.Noneable(inner_type)
    if origin is Literal:
        values = [str(value) for value in arguments]
        return dg.Enum("_or_".join(values), [dg.EnumValue(value) for value in values])
    if origin is dict:
        return dg.Map(str, _member(arguments[1]))
    if origin is list:
        return dg.Array(_member(arguments[0]))
    if isinstance(annotation, type) and issubclass(annotation, OneOf):
        return dg.Selector(config_schema(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return dg.Shape(config_schema(annotation))
    # YAML reads a time as a datetime.
    return {str: str, int: int, float: dg.Float, bool: bool, datetime: dg.Any, Any: dg.Any}[annotation]


def _member(annotation: Any) -> Any:
    """The type of a list's or map's members; anything includes null.

    Dagster's own message for a null would not say where it is.
    """
    member = _type(annotation)
    if member is dg.Any:
        return dg.Noneable(member)
    return member


sweep_config = dg.ConfigMapping(config_fn=_job_config, config_schema=config_schema(SweepSpec))
launch_config = dg.ConfigMapping(config_fn=_launch_config, config_schema=config_schema(SweepSpec))
