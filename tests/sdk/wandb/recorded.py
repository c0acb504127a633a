"""What the store has of a run that a test has logged."""

from typing import Any

from halving import Store
from halving.query.curve_stats import fill_last, keys_of, read_curve
from halving.query.runs import RunInfo, list_runs, read_run


def recorded_run(store: Store, run: Any) -> RunInfo:
    """The record of a run of ``halving.wandb``."""
    return read_run(store, run.project, run.id)


def only_run(store: Store) -> RunInfo:
    """The record of the store's one run, with its summary."""
    (info,) = fill_last(store, list_runs(store))
    return info


def curves_of(store: Store, run: Any) -> dict[str, list[tuple[int, float]]]:
    """The steps and values of each metric, without those of the machine."""
    project = run.project
    name = getattr(run, "id", None) or run.run
    curves = {}
    for key in keys_of(store, project, name):
        if not key.startswith("system/"):
            points = read_curve(store, project, name, key)
            curves[key] = list(zip(points.step.tolist(), points.value.tolist(), strict=True))
    return curves
