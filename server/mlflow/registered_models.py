"""MLflow's registered models: those of our registry, with descriptions, tags and aliases."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

from resources.catalog import RegisteredModelRow
from resources.registry import annotations, client_versions, registered_models
from resources.registry.client_versions import aliases_of, check_alias, find_version
from resources.registry.events import CHAMPION
from resources.registry.registered_models import create_model, find_model, now_ms, rename_model
from server.mlflow.call import Call
from server.mlflow.forms import without_empty
from server.mlflow.model_versions import check_candidate
from server.mlflow.refusals import Refused
from server.mlflow.registry_forms import (
    alias,
    latest_versions,
    model_form,
    model_name,
    named_model,
    stage,
    tag,
    tags,
    version_form,
    version_number,
)


def create(call: Call) -> dict[str, Any]:
    name = model_name(call)
    pairs = tags(call)
    description = call.maybe_text("description") or ""
    call.check(name, f"model {name!r}")
    with call.state.catalog.write(exclusive=True) as session:
        row = create_model(session, name, description, pairs, actor=call.caller.actor)
        call.log_write(session)
        return {"registered_model": model_form(session, row)}


def get(call: Call) -> dict[str, Any]:
    with call.state.catalog.read() as session:
        return {"registered_model": model_form(session, named_model(call, session))}


def update(call: Call) -> dict[str, Any]:
    description = call.maybe_text("description") or ""
    with _change(call) as (session, row):
        annotations.describe(session, row, description, actor=call.caller.actor)
        return {"registered_model": model_form(session, row)}


def rename(call: Call) -> dict[str, Any]:
    name = model_name(call, "new_name")
    call.check(name, f"model {name!r}")
    with call.state.catalog.write(exclusive=True) as session:
        row = rename_model(session, named_model(call, session), name, actor=call.caller.actor)
        call.log_write(session)
        return {"registered_model": model_form(session, row)}


def delete(call: Call) -> dict[str, Any]:
    with call.state.catalog.write(exclusive=True) as session:
        registered_models.delete_model(session, named_model(call, session), actor=call.caller.actor)
        call.log_write(session)
    return {}


def get_latest_versions(call: Call) -> dict[str, Any]:
    wanted = {stage(name) for name in call.texts("stages")}
    with call.state.catalog.read() as session:
        row = named_model(call, session)
        aliases = aliases_of(session, row)
        forms = [
            version_form(version, aliases)
            for name, version in latest_versions(session, row.name).items()
            if not wanted or name in wanted
        ]
    return without_empty(model_versions=forms)


def set_tag(call: Call) -> dict[str, Any]:
    key, value = tag(call.fields)
    with _change(call, touch=False) as (session, row):
        annotations.set_tag(session, row, key, value, actor=call.caller.actor)
    return {}


def delete_tag(call: Call) -> dict[str, Any]:
    key = call.text("key")
    with _change(call, touch=False) as (session, row):
        annotations.delete_tag(session, row, key, actor=call.caller.actor)
    return {}


def set_alias(call: Call) -> dict[str, Any]:
    name = alias(call)
    number = version_number(call)
    check_alias(name)
    if name == CHAMPION:
        check_candidate(call)
    with _change(call, touch=False) as (session, row):
        client_versions.set_alias(
            session, row, name, find_version(session, row.name, number), actor=call.caller.actor
        )
    return {}


def delete_alias(call: Call) -> dict[str, Any]:
    name = alias(call)
    with _change(call, touch=False) as (session, row):
        client_versions.delete_alias(session, row, name, actor=call.caller.actor)
    return {}


def get_by_alias(call: Call) -> dict[str, Any]:
    name = alias(call)
    with call.state.catalog.read() as session:
        row = named_model(call, session)
        aliases = aliases_of(session, row)
        if name.lower() == "latest":
            newest = max(
                (version.number for version in latest_versions(session, row.name).values()), default=None
            )
            if newest is None:
                raise Refused("RESOURCE_DOES_NOT_EXIST", f"Latest version not found for model {row.name}.")
            number = newest
        elif name in aliases:
            number = aliases[name]
        else:
            raise Refused("INVALID_PARAMETER_VALUE", f"Registered model alias {name} not found.")
        return {"model_version": version_form(find_version(session, row.name, number), aliases)}


@contextmanager
def _change(call: Call, *, touch: bool = True) -> Iterator[tuple[Session, RegisteredModelRow]]:
    """Yield the model that a request changes, in a transaction that also writes the log."""
    name = model_name(call)
    call.check(name, f"model {name!r}")
    with call.state.catalog.write(exclusive=True) as session:
        row = find_model(session, name)
        if touch:
            row.updated = now_ms()
        yield session, row
        call.log_write(session)
