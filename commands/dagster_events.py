"""Events that commands report to Dagster, so that its pages show them as those of Dagster's own runs."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from commands.shared import dagster_home
from halving import Store

if TYPE_CHECKING:
    import dagster as dg


def report_events(
    store: Store, make: "Callable[[], Iterable[dg.AssetMaterialization | dg.AssetObservation]]", fault: str
) -> None:
    """Report events to the Dagster instance of a store, if it has one; a failure is only printed.

    Args:
        make: makes the events; it is called only where there is an instance, because it imports Dagster.
        fault: the beginning of the message where that fails; the reason follows.
    """
    home = dagster_home(store)
    if not home.is_dir():
        return
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    try:
        from pipelines.dagster_storage import open_instance

        events = list(make())
        if events:
            with open_instance(home) as instance:
                for event in events:
                    instance.report_runless_asset_event(event)
    except Exception as error:  # noqa: BLE001  # Dagster's database may raise anything.
        print(f"{fault} ({home}): {error}", file=sys.stderr, flush=True)
