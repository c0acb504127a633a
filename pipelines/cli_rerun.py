"""``halving rerun`` beside Dagster: the SDK's command, whose verdict on a trial becomes an observation of its partition."""

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


def _observe(store: Store, verdict: "Verdict") -> None:
    """Leave the verdict with the trial in Dagster."""

    def make() -> "list[dg.AssetObservation]":
        from assets.trials import observed_rerun

        observation = observed_rerun(verdict)
        return [] if observation is None else [observation]

    report_events(store, make, "the verdict is kept in the store, and could not be left with the trial in Dagster")
