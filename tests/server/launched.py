"""What Dagster's run of an intent does, without Dagster."""

from typing import Any

from resources.backend import Backend
from resources.scheduling import intents
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import stored_spec


def carried_out(backend: Backend, intent: str) -> Scheduler:
    """Open an intent's sweep."""
    row = intents.begin(backend.catalog, intent, "r1")
    spec = stored_spec(row.payload["spec"])
    options: Any = {"driver": row.payload["driver"], "commit": None, "sweep": row.sweep}
    intents.carry_out(
        backend.catalog,
        intent,
        "r1",
        lambda within: open_sweep(backend.catalog, spec, str(spec.snapshot), **options, within=within),
    )
    return Scheduler(backend.catalog, row.sweep)
