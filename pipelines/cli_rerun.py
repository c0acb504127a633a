"""``halving rerun`` and ``halving why`` where the application is installed: the SDK's commands, with the
cluster at hand.

The verdict of a rerun becomes an observation of the trial's partition in Dagster.
"""

import argparse
from typing import TYPE_CHECKING

from halving import Store
from pipelines.dagster_events import report_events

if TYPE_CHECKING:
    import dagster as dg

    from halving.rerun.verdict import Verdict


def run_rerun(arguments: argparse.Namespace) -> int:
    """As :func:`halving.cli.rerun.run_rerun`."""
    from halving.cli.rerun import answer, rerun_named
    from resources.execution.kubernetes.rerun_pod import rerun_pods

    verdict = rerun_named(arguments, rerun_pods())
    status = answer(arguments, verdict)
    _observe(Store(arguments.root), verdict)
    return status


def run_why(arguments: argparse.Namespace) -> int:
    """As :func:`halving.cli.why.run_why`."""
    from halving.cli.why import run_why
    from resources.execution.kubernetes.rerun_pod import rerun_pods

    return run_why(arguments, rerun_pods() if arguments.rerun else None)


def _observe(store: Store, verdict: "Verdict") -> None:
    """Leave the verdict with the trial in Dagster."""

    def make() -> "list[dg.AssetObservation]":
        from assets.trials import observed_rerun

        observation = observed_rerun(verdict)
        return [] if observation is None else [observation]

    report_events(
        store, make, "the verdict is kept in the store, and could not be left with the trial in Dagster"
    )
