"""``halving rerun`` and ``halving why`` of the application: the SDK's commands, which may use the cluster.

The verdict of a rerun becomes an observation of the trial's partition in Dagster.
"""

import argparse
from typing import TYPE_CHECKING

from commands.dagster_events import report_events
from halving import Store

if TYPE_CHECKING:
    import dagster as dg

    from halving.rerun.verdict import Verdict


def run_rerun(arguments: argparse.Namespace) -> int:
    """Rerun a run by :func:`halving.cli.rerun.run_rerun`, and report the verdict to Dagster."""
    from halving.cli.rerun import answer, rerun_named
    from resources.execution.kubernetes.rerun_pod import rerun_pods

    verdict = rerun_named(arguments, rerun_pods())
    status = answer(arguments, verdict)
    _observe(Store(arguments.root), verdict)
    return status


def run_why(arguments: argparse.Namespace) -> int:
    """Explain a difference by :func:`halving.cli.why.run_why`, with reruns in pods."""
    from halving.cli.why import run_why
    from resources.execution.kubernetes.rerun_pod import rerun_pods

    pods = None
    if arguments.rerun:
        pods = rerun_pods()
    return run_why(arguments, pods)


def _observe(store: Store, verdict: "Verdict") -> None:
    """Report the verdict as an observation of the trial to Dagster."""

    def make() -> "list[dg.AssetObservation]":
        from assets.trials import observed_rerun

        observation = observed_rerun(verdict)
        if observation is None:
            return []
        return [observation]

    report_events(
        store, make, "the verdict is kept in the store, and could not be left with the trial in Dagster"
    )
