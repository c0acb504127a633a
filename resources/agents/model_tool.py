"""The tool ``models``: versions, champion, gates, history; promotion is a request that a person decides."""

from collections.abc import Mapping
from typing import Any

from halving.errors import InvalidInput, NotFound
from resources.agents.arguments import Argument, Tool
from resources.agents.budget import Reply
from resources.agents.desk import Desk
from resources.agents.marking import clean, number
from resources.catalog import ModelVersionRow
from resources.catalog.models import models_of, versions_of
from resources.registry.events import CHAMPION, describe_event, events_of
from resources.registry.promotion_requests import request_promotion
from resources.registry.verdicts import blockers

_EVENTS = 10


def models(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """List models, describe one, or request that a person promotes a version."""
    model = asked_for["model"]
    offset = asked_for["offset"]
    if not model:
        if asked_for["request"]:
            raise InvalidInput("model is missing: say which model's version is to be promoted")
        rows = _lines_of_all(desk)
        reply.add(f"{len(rows)} models")
        reply.add_rows(rows[offset:], "models", lambda added: f"ask with offset={offset + added}")
        return
    desk.agent.check(model, f"model {model!r}")
    if asked_for["request"]:
        _request(desk, reply, model, asked_for["version"], asked_for["request"])
        return
    _describe(desk, reply, model, asked_for["version"], offset)


def _request(desk: Desk, reply: Reply, model: str, version: str, note: str) -> None:
    desk.agent.check_writes("a request for promotion")
    if not version:
        raise InvalidInput("version is missing: say which version is to be promoted")
    with desk.catalog.write() as session:
        missing = request_promotion(session, model, version, actor=desk.agent.actor, note=note)
        desk.note_write(session, "models", f"{model}/{version}/request")
    reply.add(f"promotion of {clean(model)} {clean(version)} is requested; it is not promoted")
    for reason in missing:
        reply.add(f"held back: {clean(reason, 100)}")
    reply.note("a person decides: halving promote MODEL VERSION, or the model's page")


def _lines_of_all(desk: Desk) -> list[str]:
    lines = []
    with desk.catalog.read() as session:
        for model in models_of(session):
            if not desk.agent.sees(model.name):
                continue
            versions = versions_of(session, model.name)
            champion = next((clean(row.version) for row in versions if row.stage == CHAMPION), "none")
            newest = "none"
            if versions:
                newest = f"{clean(versions[-1].version)} ({clean(versions[-1].stage)})"
            lines.append(f"{clean(model.name)} champion={champion} newest={newest} versions={len(versions)}")
    return lines


def _describe(desk: Desk, reply: Reply, model: str, version: str, offset: int) -> None:
    with desk.catalog.read() as session:
        versions = [row for row in versions_of(session, model) if version in ("", row.version)]
        if not versions:
            raise NotFound(
                f"no model {model!r} with a version {version!r}; models without a model lists them"
            )
        rows = []
        for row in reversed(versions):
            rows.append(_line_of(row))
            rows += [f"  {clean(reason, 100)}" for reason in _held_back(session, row)]
            rows += [
                f"  gate {clean(gate['name'])}: {clean(gate['outcome'], 10)} {clean(gate['reason'], 40)}"
                for gate in row.gates or []
                if version or not gate["passed"]
            ]
        events = [
            f"  {event.at:%Y-%m-%dT%H:%M} {clean(event.actor, 20)}: {clean(describe_event(event), 40)} "
            f"{clean(event.note or '', 60)}"
            for event in reversed(events_of(session, model))
        ]
    reply.add_rows(
        rows[offset:], "lines", lambda added: f"ask with a version, or offset={offset + added}", share=0.7
    )
    reply.add("history, newest first:")
    reply.add_rows(events[:_EVENTS], "events", lambda _: "the model's page has them", total=len(events))


def _held_back(session: Any, row: ModelVersionRow) -> list[str]:
    if row.stage == CHAMPION:
        return []
    return [f"held back: {reason}" for reason in blockers(session, row)]


def _line_of(row: ModelVersionRow) -> str:
    metrics = " ".join(f"{clean(name)}={number(value)}" for name, value in row.metrics.items())
    origin = ""
    if row.run:
        origin = f"run={clean(row.project)}/{clean(row.run)}"
    return f"{clean(row.version)} {clean(row.stage)} {metrics} {origin} {row.created_at:%Y-%m-%d}"


TOOLS = (
    Tool(
        "models",
        "Model versions, champion, gates, what holds a version back, history. request asks a person to "
        "promote a version; no tool promotes.",
        (
            Argument("model", default=""),
            Argument("version", default=""),
            Argument("request", about="why to promote", default=""),
            Argument("offset", "integer", default=0),
        ),
        models,
        effect="may write",
    ),
)
