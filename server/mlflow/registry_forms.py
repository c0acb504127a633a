"""The registry's models and versions in MLflow's form, and checks of their fields."""

import posixpath
import re
from typing import Any

from sqlalchemy.orm import Session

from resources.catalog import ModelVersionRow, RegisteredModelRow
from resources.catalog.models import versions_of
from resources.registry.client_versions import STAGES, aliases_of, find_version
from resources.registry.registered_models import find_model
from server.mlflow import call as fields
from server.mlflow.call import Call, invalid, missing, too_long
from server.mlflow.forms import without_empty
from server.mlflow.refusals import Refused

_MAX_NAME_LETTERS = 256
_MAX_ALIAS_LETTERS = 255
_MAX_TAG_LETTERS = 100_000
_STAGES = {stage.lower(): stage for stage in STAGES}


def model_form(session: Session, row: RegisteredModelRow) -> dict[str, Any]:
    """A model with its latest version in each stage."""
    aliases = aliases_of(session, row)
    latest = [version_form(version, aliases) for version in latest_versions(session, row.name).values()]
    named = [{"alias": alias, "version": str(number)} for alias, number in sorted(aliases.items())]
    return {
        "name": row.name,
        "creation_timestamp": row.created,
        "last_updated_timestamp": row.updated,
        "description": row.description,
        **without_empty(latest_versions=latest),
        **_tags(row.tags),
        **without_empty(aliases=named),
    }


def version_form(row: ModelVersionRow, aliases: dict[str, int]) -> dict[str, Any]:
    """A version; ``aliases`` are those of its model."""
    own = [alias for alias, number in sorted(aliases.items()) if number == row.number]
    return {
        "name": row.model,
        "version": str(row.number),
        "creation_timestamp": round(1000 * row.created_at.timestamp()),
        "last_updated_timestamp": row.updated,
        **({"description": row.description} if row.description is not None else {}),
        "current_stage": row.mlflow_stage,
        "source": source_of(row),
        "run_id": row.run or "",
        "run_link": row.run_link or "",
        "status": "READY",
        **_tags(row.tags),
        **without_empty(aliases=own),
    }


def source_of(row: ModelVersionRow) -> str:
    """The source of a version; a sweep's winner has its checkpoint's address."""
    return row.source or f"mlflow-artifacts:/registered-models/{row.model}/{row.number}"


def latest_versions(session: Session, model: str) -> dict[str, ModelVersionRow]:
    """The newest version of a model in each of MLflow's stages."""
    return {row.mlflow_stage: row for row in versions_of(session, model)}


def named_model(call: Call, session: Session, field: str = "name") -> RegisteredModelRow:
    """The model that a request names, if its caller may see it."""
    name = model_name(call, field)
    call.check(name, f"model {name!r}")
    return find_model(session, name)


def named_version(call: Call, session: Session) -> ModelVersionRow:
    """The version that a request names, if its caller may see it."""
    model = named_model(call, session)
    number = version_number(call)
    return find_version(session, model.name, number)


def model_name(call: Call, field: str = "name") -> str:
    """Check the name of a model."""
    name = call.text(field)
    if not name.strip():
        raise missing(field)
    if "/" in name or ":" in name:
        raise Refused(
            "INVALID_PARAMETER_VALUE", f"Invalid model name '{name}'. Names cannot contain '/' or ':'."
        )
    normal = posixpath.normpath(name)
    if normal != name or normal in (".", ".."):
        raise invalid(field, name, f"it would be another name, {normal!r}, as a file")
    if len(name) > _MAX_NAME_LETTERS:
        raise too_long(field, _MAX_NAME_LETTERS)
    return name


def version_number(call: Call) -> int:
    number = call.fields.get("version")
    if isinstance(number, int) and not isinstance(number, bool):
        number = str(number)
    if not isinstance(number, str) or not number:
        raise missing("version")
    if not re.fullmatch(r"-?\d{1,9}", number):
        raise Refused("INVALID_PARAMETER_VALUE", f"Parameter 'version' must be an integer, got '{number}'.")
    return int(number)


def stage(text: str) -> str:
    """Parse one of MLflow's stages, ignoring case."""
    name = _STAGES.get(text.lower())
    if name is None:
        stages = ", ".join(STAGES)
        raise Refused(
            "INVALID_PARAMETER_VALUE", f"Invalid Model Version stage: {text}. Value must be one of {stages}."
        )
    return name


def alias(call: Call) -> str:
    """Check the name of an alias."""
    name = call.text("alias")
    if not re.fullmatch(r"[\w\-]+", name):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Invalid alias name: '{name}'. Names may only contain alphanumerics, underscores (_), and "
            "dashes (-).",
        )
    if len(name) > _MAX_ALIAS_LETTERS:
        raise too_long("alias", _MAX_ALIAS_LETTERS)
    return name


def tags(call: Call) -> dict[str, str]:
    """The tags of something that is registered."""
    return dict(tag(item, f"tags[{place}].") for place, item in enumerate(call.objects("tags")))


def tag(item: dict[str, Any], path: str = "") -> tuple[str, str]:
    """A tag's key and value."""
    name = fields.key(f"{path}key", item.get("key"))
    value = fields.checked_text(f"{path}value", fields.value_of(item))
    if len(value) > _MAX_TAG_LETTERS:
        raise too_long(f"{path}value", _MAX_TAG_LETTERS)
    return name, value


def _tags(tags_by_key: dict[str, str]) -> dict[str, Any]:
    return without_empty(tags=[{"key": key, "value": value} for key, value in tags_by_key.items()])
