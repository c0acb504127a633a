"""``halving rerun`` beside Dagster: the SDK's command, whose verdict on a trial becomes an observation of its partition."""

import argparse
import os
from typing import TYPE_CHECKING

from halving import Store
from pipelines.cli_views import dagster_home

if TYPE_CHECKING:
    from halving.rerun.verdict import Verdict


def run_rerun(arguments: argparse.Namespace) -> int:
    """As :func:`halving.cli.rerun.run_rerun`."""
    from halving.cli.rerun import answer, rerun_named
    from resources.execution.kubernetes.rerun_pod import rerun_pods

    verdict = rerun_named(arguments, rerun_pods())
    status = answer(arguments, verdict)
    _observe(Store(arguments.root), verdict)
    return status


def _observe(store: Store, verdict: "Verdict") -> None:
    """Leave the verdict with the trial in Dagster, where there is an instance; what goes wrong there does not change the verdict."""
    home = dagster_home(store)
    if not home.is_dir():
        return
    from halving.cli.rerun import tell

    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    try:
        import dagster as dg

        from assets.trials import observed_rerun

        if (observation := observed_rerun(verdict)) is not None:
            with dg.DagsterInstance.from_config(str(home)) as instance:
                instance.report_runless_asset_event(observation)
    except Exception as error:  # noqa: BLE001  # whatever Dagster's database raises
        tell(f"the verdict is kept in the store, and could not be left with the trial in Dagster ({home}): {error}")
