"""The model registry: versions, the champion with an address to fetch it from, and changes of stage."""

from datetime import datetime
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from halving.errors import NotFound
from halving.store.store import blob_name
from resources.catalog import ModelVersionRow, RegisteredModelRow
from resources.catalog.models import champion_of, models_of, versions_of
from resources.features.registered_views import features_of
from resources.registry.versions import archive, as_dict, promote
from server.access.once import Once
from server.answers import Number, answer
from server.checkpoint_links import checkpoint_link, linked_digest
from server.identity.caller import Caller, Viewer
from server.media.pieces import pieces
from server.state import Shared
from server.store_threads import reads_store

router = APIRouter(prefix="/models", tags=["models"])
signed = APIRouter(prefix="/signed", tags=["models"])

ModelName = Annotated[str, Path(description="The model, which is the name of its sweeps' spec.", examples=["digits"])]
VersionName = Annotated[str, Path(description="A semantic version.", examples=["1.0.0"])]


class Version(BaseModel):
    """A version of a model, as ``halving models --json`` gives it."""

    model: str = Field(examples=["digits"])
    version: str = Field(examples=["1.0.0"])
    number: int = Field(description="What MLflow's clients call it.", examples=[1])
    stage: str = Field(description="staging, champion or archived.", examples=["champion"])
    metrics: dict[str, Number | None] = Field(description="On the test split.", examples=[{"accuracy": 0.97}])
    project: str | None = Field(description="Whose run it is of, where that is known.", examples=["digits"])
    run: str | None = Field(examples=["digits-7f3a.0007"])
    sweep: str | None = Field(description="Of which it is the winner; null: a client registered it.", examples=["digits-7f3a"])
    trial: int | None
    checkpoint: str | None = Field(examples=["sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"])
    snapshot: str | None = Field(description="The digest of the data that it was trained on.")
    framework: str = Field(examples=["torch 2.13.0"])
    source: str | None = Field(description="What a client registered as it.", examples=["mlflow-artifacts:/1/models/m-5f/artifacts"])
    description: str | None
    tags: dict[str, str]
    created_at: datetime
    features: list[str] = Field(description="Of feature views, which it was trained with and is to be served.", examples=[["clicks@1:ctr"]])


class Model(BaseModel):
    """A model with its versions, newest last."""

    model: str = Field(examples=["digits"])
    description: str
    tags: dict[str, str]
    aliases: dict[str, str] = Field(description="Versions by the names that clients gave them.", examples=[{"candidate": "1.0.1"}])
    versions: list[Version]


class Models(BaseModel):
    """All models, by name."""

    models: list[Model]


class Champion(BaseModel):
    """The version that is to be served, and where to fetch it."""

    model: str = Field(examples=["digits"])
    version: str = Field(examples=["1.0.0"])
    checkpoint: str | None = Field(description="The digest of its checkpoint; null: a client registered it.", examples=["sha256:2c26b46b…"])
    source: str | None = Field(description="What a client registered as it.", examples=["mlflow-artifacts:/1/models/m-5f/artifacts"])
    framework: str = Field(examples=["torch 2.13.0"])
    input_schema: dict[str, Any] = Field(description="Column to Arrow type.", examples=[{"pixel_0_0": "double"}])
    output_schema: dict[str, Any] = Field(examples=[{"type": "int64", "classes": [0, 1]}])
    metrics: dict[str, Number | None] = Field(description="On the test split.", examples=[{"accuracy": 0.97}])
    features: list[str] = Field(description="To look up in the online store and hand to it.", examples=[["clicks@1:ctr"]])
    url: str | None = Field(description="Where to fetch the checkpoint until then, without a token: on S3, or below this server's address.")
    expires_at: datetime | None


@router.get("", response_model=Models)
def list_models(state: Shared, caller: Viewer) -> Response:
    """All models with their versions."""
    with state.catalog.read() as session:
        versions = {model: list(rows) for model, rows in groupby(versions_of(session), key=lambda row: row.model)}
        models = [_as_dict(session, row, versions.get(row.name, [])) for row in models_of(session) if caller.sees(row.name)]
    return answer({"models": models})


@router.get("/{model}", response_model=Model)
def one_model(model: ModelName, state: Shared, caller: Viewer) -> Response:
    """A model's versions, newest last."""
    caller.check(model, f"model {model!r}")
    with state.catalog.read() as session:
        row = session.get(RegisteredModelRow, model)
        if row is None:
            raise NotFound(_no_model(session, model, caller))
        found = _as_dict(session, row, versions_of(session, model))
    return answer(found)


@router.get("/{model}/champion", response_model=Champion)
def champion(model: ModelName, state: Shared, caller: Viewer) -> Response:
    """The model's champion, with its schema and an address from which its checkpoint can be fetched for a quarter of an hour."""
    caller.check(model, f"model {model!r}")
    with state.catalog.read() as session:
        row = champion_of(session, model)
        if row is None:
            known = session.get(RegisteredModelRow, model)
            raise NotFound(f"model {model!r} has no champion" if known else _no_model(session, model, caller))
        features = features_of(session, row)
    names = ("model", "version", "checkpoint", "source", "framework", "input_schema", "output_schema", "metrics")
    url, expires_at = checkpoint_link(state, row.checkpoint) if row.checkpoint else (None, None)
    return answer({**{name: getattr(row, name) for name in names}, "features": features, "url": url, "expires_at": expires_at})


@router.post("/{model}/versions/{version}/promote", response_model=Version)
def make_champion(model: ModelName, version: VersionName, state: Shared, caller: Viewer, once: Once) -> Response:
    """Make a version the champion and archive the one before. An archived version can become champion again: that is a rollback."""
    caller.check(model, f"model {model!r}")
    return once(lambda session: (200, as_dict(session, promote(state.catalog, model, version, session))))


@router.post("/{model}/versions/{version}/archive", response_model=Version)
def take_out_of_use(model: ModelName, version: VersionName, state: Shared, caller: Viewer, once: Once) -> Response:
    """Take a version out of use."""
    caller.check(model, f"model {model!r}")
    return once(lambda session: (200, as_dict(session, archive(state.catalog, model, version, session))))


def _as_dict(session: Session, model: RegisteredModelRow, rows: list[ModelVersionRow]) -> dict[str, Any]:
    names = {row.number: row.version for row in rows}
    aliases = {alias: names[number] for alias, number in model.aliases.items()}
    about = {"description": model.description, "tags": model.tags, "aliases": aliases}
    return {"model": model.name, **about, "versions": [as_dict(session, row) for row in rows]}


def _no_model(session: Session, model: str, caller: Caller) -> str:
    known = [row.name for row in models_of(session) if caller.sees(row.name)]
    return f"no model {model!r}; there are {', '.join(known) or 'no models yet: run a sweep first'}"


@signed.get("/{address}", response_class=Response, responses={200: {"content": {"application/octet-stream": {}}}})
@reads_store
def checkpoint(address: Annotated[str, Path(description="What the champion's ``url`` ends with.")], state: Shared) -> StreamingResponse:
    """The bytes of a checkpoint, for who was given its address."""
    digest = linked_digest(state, address)
    with state.store.open_file(blob_name(digest)) as file:
        size = file.size()
    headers = {"Content-Length": str(size), "Content-Disposition": f'attachment; filename="{digest[7:23]}.ckpt"'}
    content = state.store_threads.stream(pieces(state.store, digest, 0, size))
    return StreamingResponse(content, media_type="application/octet-stream", headers=headers)
