"""The model registry: versions, the champion with an address to fetch it from, and changes of stage."""

from collections.abc import Callable
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from halving.errors import NotFound
from resources.catalog import ModelVersionRow, RegisteredModelRow
from resources.catalog.models import champion_of, models_of, versions_of
from resources.features.registry import features_of
from resources.registry import stages
from resources.registry.history import newest_events
from resources.registry.verdicts import check_whole
from resources.registry.versions import as_dict
from server.access.idempotency import Idempotent, IdempotentWrite
from server.access.policy import ANY_METHOD, RoutePolicy
from server.answers import Number, answer
from server.checkpoint_downloads import checkpoint_response
from server.checkpoint_links import checkpoint_link, linked_digest
from server.identity.caller import Caller, Viewer
from server.state import Shared
from server.store_threads import reads_store, reads_store_and_writes

router = APIRouter(prefix="/models", tags=["models"])
signed = APIRouter(prefix="/signed", tags=["models"])
POLICIES = [RoutePolicy("/signed/", open=ANY_METHOD)]  # such an address was signed for somebody who may

ModelName = Annotated[
    str, Path(description="The model, which is the name of its sweeps' spec.", examples=["digits"])
]
VersionName = Annotated[str, Path(description="A semantic version.", examples=["1.0.0"])]


class Version(BaseModel):
    """A version of a model, as ``halving models list --json`` gives it."""

    model: str = Field(examples=["digits"])
    version: str = Field(examples=["1.0.0"])
    number: int = Field(description="What MLflow's clients call it.", examples=[1])
    stage: str = Field(description="staging, champion or archived.", examples=["champion"])
    metrics: dict[str, Number | None] = Field(description="On the test split.", examples=[{"accuracy": 0.97}])
    project: str | None = Field(description="Whose run it is of, where that is known.", examples=["digits"])
    run: str | None = Field(examples=["digits-7f3a.0007"])
    sweep: str | None = Field(
        description="Of which it is the winner; null: a client registered it.", examples=["digits-7f3a"]
    )
    trial: int | None
    checkpoint: str | None = Field(
        examples=["sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"]
    )
    snapshot: str | None = Field(description="The digest of the data that it was trained on.")
    framework: str = Field(examples=["torch 2.13.0"])
    source: str | None = Field(
        description="What a client registered as it.", examples=["mlflow-artifacts:/1/models/m-5f/artifacts"]
    )
    description: str | None
    tags: dict[str, str]
    created_at: datetime
    judged_against: str | None = Field(
        description="The champion's version that it was compared with.", examples=["1.0.0"]
    )
    gates: list[dict[str, Any]] = Field(
        description="The verdicts of its gates, empty where none has judged it.",
        examples=[[{"name": "finite_metrics", "passed": True, "reason": "every test metric is finite"}]],
    )
    features: list[str] = Field(
        description="Of feature views, which it was trained with and is to be served.",
        examples=[["clicks@1:ctr"]],
    )


class Model(BaseModel):
    """A model with its versions, newest last."""

    model: str = Field(examples=["digits"])
    description: str
    tags: dict[str, str]
    aliases: dict[str, str] = Field(
        description="Versions by the names that clients gave them.", examples=[{"candidate": "1.0.1"}]
    )
    versions: list[Version]


class Models(BaseModel):
    """All models, by name."""

    models: list[Model]


class Champion(BaseModel):
    """The version that is to be served, and where to fetch it."""

    model: str = Field(examples=["digits"])
    version: str = Field(examples=["1.0.0"])
    checkpoint: str | None = Field(
        description="The digest of its checkpoint; null: a client registered it.",
        examples=["sha256:2c26b46b…"],
    )
    source: str | None = Field(
        description="What a client registered as it.", examples=["mlflow-artifacts:/1/models/m-5f/artifacts"]
    )
    framework: str = Field(examples=["torch 2.13.0"])
    input_schema: dict[str, Any] = Field(
        description="Column to Arrow type.", examples=[{"pixel_0_0": "double"}]
    )
    output_schema: dict[str, Any] = Field(examples=[{"type": "int64", "classes": [0, 1]}])
    metrics: dict[str, Number | None] = Field(description="On the test split.", examples=[{"accuracy": 0.97}])
    features: list[str] = Field(
        description="To look up in the online store and hand to it.", examples=[["clicks@1:ctr"]]
    )
    url: str | None = Field(
        description=(
            "Where to fetch the checkpoint until then, without a token: on S3, or below this server's "
            "address."
        )
    )
    expires_at: datetime | None


@router.get("", response_model=Models)
def list_models(state: Shared, caller: Viewer) -> Response:
    """All models with their versions."""
    with state.catalog.read() as session:
        versions = {
            model: list(rows) for model, rows in groupby(versions_of(session), key=lambda row: row.model)
        }
        models = [
            _as_dict(session, row, versions.get(row.name, []))
            for row in models_of(session)
            if caller.sees(row.name)
        ]
    return answer({"models": models})


@router.get("/{model}", response_model=Model)
def one_model(model: ModelName, state: Shared, caller: Viewer) -> Response:
    """A model's versions, newest last."""
    caller.check(model, f"model {model!r}")
    with state.catalog.read() as session:
        row = session.get(RegisteredModelRow, model)
        if row is None:
            raise NotFound(_no_model(session, model, caller))
        content = _as_dict(session, row, versions_of(session, model))
    return answer(content)


@router.get("/{model}/champion", response_model=Champion)
@reads_store
def champion(model: ModelName, state: Shared, caller: Viewer) -> Response:
    """The model's champion, its schema, and an address of its checkpoint.

    The checkpoint can be fetched from the address for a quarter of an hour.
    """
    caller.check(model, f"model {model!r}")
    with state.catalog.read() as session:
        row = champion_of(session, model)
        if row is None:
            registered = session.get(RegisteredModelRow, model)
            if registered is None:
                raise NotFound(_no_model(session, model, caller))
            raise NotFound(f"model {model!r} has no champion")
        features = features_of(session, row)
    names = (
        "model",
        "version",
        "checkpoint",
        "source",
        "framework",
        "input_schema",
        "output_schema",
        "metrics",
    )
    link: tuple[str, datetime] | tuple[None, None] = (None, None)
    if row.checkpoint:
        link = checkpoint_link(state, row.checkpoint)
    return answer(
        {
            **{name: getattr(row, name) for name in names},
            "features": features,
            "url": link[0],
            "expires_at": link[1],
        }
    )


class Event(BaseModel):
    """A change of a model: who, when, from what, to what, and why. Events are only ever added."""

    id: int
    version: str | None = Field(examples=["1.0.1"])
    kind: str = Field(description="What was done.", examples=["promoted"])
    actor: str = Field(description="Who did it: a token's or a user's name, or a sweep.", examples=["alice"])
    at: datetime
    before: str | None = Field(examples=["staging"])
    after: str | None = Field(examples=["champion"])
    note: str | None = Field(description="Why, in that person's words.")
    report: str | None = Field(description="The digest of the report by which the version was judged.")
    summary: str = Field(description="The change in words.", examples=["1.0.1 promoted: staging → champion"])


class History(BaseModel):
    """The newest events of a model, or those before one of them, oldest first."""

    model: str = Field(examples=["digits"])
    events: list[Event]
    earlier: int | None = Field(
        description="What to ask for as `before` for older events; null: there are none.", examples=[1200]
    )


@router.get("/{model}/history", response_model=History)
def history(
    model: ModelName,
    state: Shared,
    caller: Viewer,
    before: Annotated[
        int | None,
        Query(ge=1, le=2**53, description="An event's id: only what is older. Without it the newest."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many events at most.")] = 100,
) -> Response:
    """What happened to a model, oldest first: who decided what, and why."""
    caller.check(model, f"model {model!r}")
    with state.catalog.read() as session:
        if session.get(RegisteredModelRow, model) is None:
            raise NotFound(_no_model(session, model, caller))
        events, earlier = newest_events(session, model, before, limit)
    return answer({"model": model, "events": events, "earlier": earlier})


class Promotion(BaseModel):
    """How a version is promoted."""

    note: str | None = Field(default=None, max_length=10_000, description="Why; needed with force.")
    force: bool = Field(
        default=False, description="Although its gates or people hold it back. It is written down."
    )


class Decision(BaseModel):
    """Why something is decided."""

    note: str = Field(
        min_length=1,
        max_length=10_000,
        description="Why; it is written down.",
        examples=["better on night scenes"],
    )


class Note(BaseModel):
    """Why, if it is to be said."""

    note: str | None = Field(default=None, max_length=10_000, description="Why, which is written down.")


@router.post("/{model}/versions/{version}/promote", response_model=Version)
@reads_store_and_writes
def make_champion(
    model: ModelName,
    version: VersionName,
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
    body: Promotion | None = None,
) -> Response:
    """Make a version the champion and archive the one before.

    Its gates, the current champion and people must let it.
    """
    caller.check(model, f"model {model!r}")
    promotion = body or Promotion()
    check_whole(state.store, state.catalog, model, version)
    arguments: Any = {"actor": caller.actor, "note": promotion.note, "force": promotion.force}
    return _change_version(
        state,
        run_once,
        lambda session: stages.promote(state.catalog, model, version, **arguments, within=session),
    )


@router.post("/{model}/versions/{version}/approve", response_model=Version)
@reads_store_and_writes
def approve(
    model: ModelName,
    version: VersionName,
    body: Decision,
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
) -> Response:
    """Approve a version, in the name of the token.

    With the last approval that it needs it may become the champion.
    """
    caller.check(model, f"model {model!r}")
    check_whole(state.store, state.catalog, model, version)
    arguments: Any = {"actor": caller.actor, "note": body.note}
    return _change_version(
        state,
        run_once,
        lambda session: stages.approve(state.catalog, model, version, **arguments, within=session),
    )


@router.post("/{model}/versions/{version}/reject", response_model=Version)
def reject(
    model: ModelName,
    version: VersionName,
    body: Decision,
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
) -> Response:
    """Reject a version, in the name of the token: it is not promoted, unless by force."""
    caller.check(model, f"model {model!r}")
    arguments: Any = {"actor": caller.actor, "note": body.note}
    return _change_version(
        state,
        run_once,
        lambda session: stages.reject(state.catalog, model, version, **arguments, within=session),
    )


@router.post("/{model}/rollback", response_model=Version)
def rollback(
    model: ModelName, state: Shared, caller: Viewer, run_once: Idempotent, body: Note | None = None
) -> Response:
    """Go back to the champion before; again, and it goes back one more."""
    caller.check(model, f"model {model!r}")
    arguments: Any = {"actor": caller.actor, "note": (body or Note()).note}
    return _change_version(
        state, run_once, lambda session: stages.rollback(state.catalog, model, **arguments, within=session)
    )


@router.post("/{model}/versions/{version}/archive", response_model=Version)
def take_out_of_use(
    model: ModelName,
    version: VersionName,
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
    body: Note | None = None,
) -> Response:
    """Take a version out of use."""
    caller.check(model, f"model {model!r}")
    arguments: Any = {"actor": caller.actor, "note": (body or Note()).note}
    return _change_version(
        state,
        run_once,
        lambda session: stages.archive(state.catalog, model, version, **arguments, within=session),
    )


def _change_version(
    state: Shared, run_once: IdempotentWrite, change: Callable[[Session], ModelVersionRow]
) -> Response:
    """Change a version in one transaction with its entry in the write log, then tell the store.

    Where that is away, the change stands.
    """
    response = run_once(lambda session: (200, as_dict(session, change(session))))
    state.publisher.publish()
    return response


def _as_dict(session: Session, model: RegisteredModelRow, rows: list[ModelVersionRow]) -> dict[str, Any]:
    names = {row.number: row.version for row in rows}
    aliases = {alias: names[number] for alias, number in model.aliases.items()}
    about = {"description": model.description, "tags": model.tags, "aliases": aliases}
    return {"model": model.name, **about, "versions": [as_dict(session, row) for row in rows]}


def _no_model(session: Session, model: str, caller: Caller) -> str:
    names = [row.name for row in models_of(session) if caller.sees(row.name)]
    return f"no model {model!r}; there are {', '.join(names) or 'no models yet: run a sweep first'}"


@signed.get(
    "/{address}", response_class=Response, responses={200: {"content": {"application/octet-stream": {}}}}
)
async def checkpoint(
    address: Annotated[str, Path(description="What the champion's ``url`` ends with.")], state: Shared
) -> StreamingResponse:
    """A checkpoint as one file, for who was given its address."""
    digest = linked_digest(state, address)
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f'attachment; filename="{digest[7:23]}.ckpt"',
    }
    return await checkpoint_response(state, digest, headers)
