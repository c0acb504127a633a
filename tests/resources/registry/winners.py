"""What the registry is told of sweeps' winners."""

from typing import Any

from resources.backend import Backend
from resources.catalog import ModelVersionRow
from resources.catalog.models import champion_of
from resources.registry.events import describe_event, events_of

PASSED = {"name": "finite_metrics", "passed": True, "reason": "every test metric is finite"}
HELD = {
    "name": "improvement",
    "passed": False,
    "reason": "too little evidence: 310 more rows would settle it",
}


def winner(sweep: str, **changes: Any) -> ModelVersionRow:
    fields: dict[str, Any] = {
        "model": "digits",
        "checkpoint": f"sha256:{sweep}",
        "sweep": sweep,
        "trial": 0,
        "run": f"{sweep}.0000",
        "snapshot": "sha256:s0",
        "framework": "torch 2",
        "input_schema": {"x": "double"},
        "output_schema": {"type": "int64"},
        "metrics": {"accuracy": 0.9},
        "report": "sha256:r",
    }
    return ModelVersionRow(**{**fields, **changes})


def client_version() -> ModelVersionRow:
    return ModelVersionRow(source="s3://bucket/net", storage="s3://bucket/net", tags={})


def champion(backend: Backend) -> str | None:
    with backend.catalog.read() as session:
        row = champion_of(session, "digits")
    return row.version if row else None


def story(backend: Backend) -> list[tuple[str, str, str | None]]:
    with backend.catalog.read() as session:
        return [(row.actor, describe_event(row), row.note) for row in events_of(session, "digits")]
