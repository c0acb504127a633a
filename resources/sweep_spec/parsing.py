"""Read a spec, and report every wrong field by its path, with its value and what is accepted."""

from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from halving.errors import InvalidInput
from halving.text import comma_list, count_of, did_you_mean
from resources.sweep_spec.base import field_names
from resources.sweep_spec.consistency import contradictions
from resources.sweep_spec.strategy import Strategy
from resources.sweep_spec.sweep import NO_TRAINABLE, SweepSpec
from resources.sweep_spec.yaml_text import read_yaml_file


def parse_spec(data: Any, *, trains: bool = True) -> SweepSpec:
    """Check a spec and fill in its defaults.

    Args:
        trains: whether the platform trains its trials. Where external loops do, it needs no trainable.

    Raises:
        InvalidInput: naming every wrong field by its path, the value given and what is accepted.
    """
    missing: list[str] = []
    if trains and isinstance(data, dict) and data.get("trainable") is None:
        missing = [NO_TRAINABLE]
    try:
        spec = SweepSpec.model_validate(data)
    except ValidationError as error:
        raise _refusal([*missing, *problems_of_model(error, SweepSpec)]) from None
    if problems := [*missing, *contradictions(spec)]:
        raise _refusal(problems)
    return spec


def stored_spec(data: Any) -> SweepSpec:
    """Read a spec that was checked when its sweep was launched, without the cross-field checks.

    Raises:
        InvalidInput: it is of another version, which had other fields.
    """
    try:
        return SweepSpec.model_validate(data)
    except ValidationError as error:
        raise _refusal(problems_of_model(error, SweepSpec)) from None


def load_spec(path: str | Path) -> SweepSpec:
    """Read a spec from a YAML file.

    Raises:
        InvalidInput: there is no such file, it is not YAML, or the spec is wrong.
    """
    return parse_spec(read_yaml_file("sweep file", path))


def problems_of_model(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """The problems of data that did not fit a model.

    Each names the field by its path, its value and what is accepted.
    """
    # A default that follows from a wrong field is missing, but that field is reported anyway.
    return [
        _problem(detail, model) for detail in error.errors() if detail["type"] != "default_factory_not_called"
    ]


def model_inside(annotation: Any) -> type[BaseModel] | None:
    """The model in ``Model``, ``Model | None``, ``list[Model]`` or ``dict[str, Model]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = (model_inside(argument) for argument in get_args(annotation))
    return next((model for model in models if model), None)


def describe_error(detail: Any) -> str:
    """What one of pydantic's errors asks for, without the names of Python's types."""
    kind = detail["type"]
    limits = detail.get("ctx", {})
    if kind == "too_short":
        return f"give at least {count_of(limits['min_length'], 'item')}"
    if kind == "too_long":
        return f"give at most {count_of(limits['max_length'], 'item')}"
    if kind in ("list_type", "tuple_type"):
        return "give a list"
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return "give names and values"
    return str(detail["msg"]).removeprefix("Value error, ")


def _refusal(problems: list[str]) -> InvalidInput:
    return InvalidInput(
        "the sweep spec is not accepted:\n" + "\n".join(f"  - {problem}" for problem in problems)
    )


def _problem(detail: Any, model: type[BaseModel]) -> str:
    path = ".".join(str(part) for part in detail["loc"]) or "(top)"
    value = detail["input"]
    message = describe_error(detail)
    if detail["type"] == "missing":
        return f"{path} is missing"
    if detail["type"] == "extra_forbidden":
        accepted = _fields_beside(detail["loc"], model)
        hint = did_you_mean(detail["loc"][-1], accepted)
        more = f"{hint}; accepted are {comma_list(accepted)}{_strategies_with(detail['loc'])}"
        return f"{path} = {value!r:.80} is not accepted: there is no such field{more}"
    if detail["type"] == "model_type":
        fields = comma_list(_fields_beside((*detail["loc"], ""), model))
        return f"{path} = {value!r:.80} is not accepted: give fields and values; the fields are {fields}"
    if isinstance(value, dict) and detail["type"] == "value_error":
        return f"{path} is not accepted: {message}"
    return f"{path} = {value!r:.80} is not accepted: {message}"


def _strategies_with(location: tuple[str | int, ...]) -> str:
    """The strategies that have this field, if ``location`` is in a strategy that has not."""
    if location[0] != "strategy" or len(location) != 3:
        return ""
    strategies = [
        name
        for name, field in Strategy.model_fields.items()
        if (model := model_inside(field.annotation)) and location[-1] in field_names(model)
    ]
    if not strategies:
        return ""
    return f"; {location[-1]} is a field of {comma_list(strategies)}"


def _fields_beside(location: tuple[str | int, ...], model: type[BaseModel]) -> list[str]:
    """The field names that are accepted beside ``location`` in a model."""
    for part in location[:-1]:
        by_alias = {field.alias or name: field for name, field in model.model_fields.items()}
        if part in by_alias:
            model = model_inside(by_alias[str(part)].annotation) or model
    return field_names(model)
