"""MLflow's model versions: those that clients register, and the winners of our sweeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

from resources.catalog import ModelVersionRow
from resources.registry import annotations, client_versions
from resources.registry.client_versions import STAGES, aliases_of
from resources.registry.events import CHAMPION
from resources.registry.registered_models import now_ms
from resources.registry.verdicts import check_whole
from server.mlflow import registry_forms
from server.mlflow.call import Call, invalid
from server.mlflow.model_sources import PROMPT_TAG, find_source, note_version
from server.mlflow.refusals import Refused
from server.mlflow.registry_forms import named_model, named_version, source_of, version_form

_ACTIVE = ("Staging", "Production")


def create(call: Call) -> dict[str, Any]:
    tags = registry_forms.tags(call)
    link = call.maybe_text("run_link") or ""
    description = call.maybe_text("description") or ""
    with call.state.catalog.write(exclusive=True) as session:
        model = named_model(call, session)
        source = find_source(call, session, prompt=tags.get(PROMPT_TAG, "").lower() == "true")
        new = ModelVersionRow(
            source=source.uri, storage=source.storage, project=source.project, run=source.run or None
        )
        new.run_link = link
        new.description = description
        new.tags = tags
        client_versions.add_version(session, model, new, actor=call.caller.actor)
        if source.model is not None:
            note_version(call, session, source.model, model.name, new.number)
        call.log_write(session)
        return {"model_version": version_form(new, aliases_of(session, model))}


def get(call: Call) -> dict[str, Any]:
    with call.state.catalog.read() as session:
        return {"model_version": _form(call, session, named_version(call, session))}


def update(call: Call) -> dict[str, Any]:
    description = call.maybe_text("description")
    with _change(call) as (session, row):
        annotations.describe(session, row, description, actor=call.caller.actor)
        return {"model_version": _form(call, session, row)}


def transition_stage(call: Call) -> dict[str, Any]:
    stage = registry_forms.stage(call.text("stage"))
    archive = call.fields.get("archive_existing_versions", False)
    if not isinstance(archive, bool):
        raise invalid("archive_existing_versions", archive, "give true or false")
    if archive and stage not in _ACTIVE:
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Model version transition cannot archive existing model versions because '{stage}' is not an "
            f"Active stage. Valid stages are {list(_ACTIVE)}",
        )
    if STAGES[stage] == CHAMPION:
        check_candidate(call)
    with _change(call) as (session, row):
        client_versions.change_stage(
            session, named_model(call, session), row, stage, archive_others=archive, actor=call.caller.actor
        )
        return {"model_version": _form(call, session, row)}


def check_candidate(call: Call) -> None:
    """Refuse a future champion whose report was altered or whose checkpoint is gone.

    It asks the store, so it is called outside of transactions.

    Raises:
        PromotionRefused: it is one of those.
        StoreUnavailable: the store does not say.
    """
    with call.state.catalog.read() as session:
        row = named_version(call, session)
    check_whole(call.state.store, call.state.catalog, row.model, row.version)


def delete(call: Call) -> dict[str, Any]:
    with call.state.catalog.write(exclusive=True) as session:
        client_versions.delete_version(
            session, named_model(call, session), named_version(call, session), actor=call.caller.actor
        )
        call.log_write(session)
    return {}


def get_download_uri(call: Call) -> dict[str, Any]:
    with call.state.catalog.read() as session:
        row = named_version(call, session)
    return {"artifact_uri": row.storage or source_of(row)}


def set_tag(call: Call) -> dict[str, Any]:
    key, value = registry_forms.tag(call.fields)
    with _change(call, touch=False) as (session, row):
        annotations.set_tag(session, row, key, value, actor=call.caller.actor)
    return {}


def delete_tag(call: Call) -> dict[str, Any]:
    key = call.text("key")
    with _change(call, touch=False) as (session, row):
        annotations.delete_tag(session, row, key, actor=call.caller.actor)
    return {}


def _form(call: Call, session: Session, row: ModelVersionRow) -> dict[str, Any]:
    return version_form(row, aliases_of(session, named_model(call, session)))


@contextmanager
def _change(call: Call, *, touch: bool = True) -> Iterator[tuple[Session, ModelVersionRow]]:
    """Yield the version that a request changes, in a transaction that also writes the log."""
    with call.state.catalog.write(exclusive=True) as session:
        row = named_version(call, session)
        if touch:
            row.updated = now_ms()
        yield session, row
        call.log_write(session)
