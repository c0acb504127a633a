"""Checks that a spec's metrics and slices fit a snapshot, before anything is trained on it."""

from collections.abc import Collection
from typing import Any

from halving.errors import InvalidInput
from halving.text import comma_list
from resources.datasets.statistics import all_columns
from resources.evaluation.slices import check_slices
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.evaluation import judged_as_number
from resources.sweep_spec.metrics import CLASS_SCORERS, TWO_CLASS_SCORERS


def check_evaluation(spec: SweepSpec, manifest: dict[str, Any]) -> None:
    """Refuse metrics that do not fit the target, and slices and ``leakage.ignore`` of missing columns.

    Args:
        manifest: the snapshot's.

    Raises:
        InvalidInput: naming the field, its value and what is accepted.
    """
    if spec.judged_by is None:
        return
    check_slices(spec.slices, manifest["schema"])
    _check_leakage(spec, manifest["schema"])
    if spec.evaluator is not None:
        return
    judged_as_number(manifest["schema"][manifest["target"]], spec.metrics, spec.gate_metrics)
    classes = all_columns(manifest).get(manifest["target"], {}).get("classes")
    for index, metric in enumerate(spec.metrics):
        if classes is not None and len(classes) > 2 and metric in TWO_CLASS_SCORERS:
            several = sorted(name for name in CLASS_SCORERS if name.startswith(f"{metric}_"))
            raise InvalidInput(
                f"metrics.{index} = {metric!r} is not accepted: it is of two classes, and "
                f"{manifest['target']!r} has {len(classes)}; give one of "
                f"{comma_list(several or sorted(CLASS_SCORERS - TWO_CLASS_SCORERS))}"
            )


def _check_leakage(spec: SweepSpec, columns: Collection[str]) -> None:
    for index, gate in enumerate(spec.gates):
        if gate.leakage is None:
            continue
        if unknown := [name for name in gate.leakage.ignore or [] if name not in columns]:
            raise InvalidInput(
                f"gates.{index}.leakage.ignore = {unknown[0]!r} is not accepted: the snapshot has no such "
                f"column; its columns are {comma_list(columns)}"
            )
