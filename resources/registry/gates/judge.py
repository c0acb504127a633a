"""Judging a winner by all gates of its spec, from the report and the test split's rows."""

from collections.abc import Mapping
from typing import Any

from halving import Dataset, Store
from resources.catalog import Catalog
from resources.datasets.held_out_leaks import check_leaks
from resources.datasets.snapshot_catalog import read_snapshot
from resources.evaluation import predictions as stored
from resources.registry.gates.against_champion import (
    Groups,
    Pair,
    judge_improvement,
    judge_non_inferior,
    judge_slices_against,
)
from resources.registry.gates.figures import (
    judge_bounds,
    judge_finite,
    judge_latency,
    judge_search_bounds,
    judge_size,
)
from resources.registry.gates.integration import judge_integration
from resources.registry.gates.lineage import judge_lineage
from resources.registry.gates.verdict import FAIL, PASS, Verdict
from resources.sweep_spec import stored_spec
from resources.sweep_spec.dataset import DatasetSource
from resources.sweep_spec.gates import KINDS, Gate, Leakage


def judge_gates(store: Store, catalog: Catalog, report: dict[str, Any], groups: Groups) -> list[Verdict]:
    """Judge a winner by the gates of its spec; verdicts are in the order of :data:`KINDS`.

    Every winner is judged by ``finite_metrics`` and ``lineage``, whichever gates its spec names.

    Args:
        report: the report's data without ``gates``, with the digests of both models' predictions.
        groups: the rows of each slice, by their position in the test split.
    """
    spec = stored_spec(report["spec"])
    champion = report["champion"]
    digest = champion and champion["predictions"]
    ours = stored.read(store, report["predictions"])
    theirs = None
    if digest:
        theirs = stored.read(store, digest)
    pair = Pair(report, ours, theirs, groups)
    verdicts = [verdict for gate in spec.gates for verdict in _judge(gate, store, catalog, report, pair)]
    if spec.bounds:
        verdicts.append(judge_search_bounds(report))
    names = {gate.name for gate in spec.gates}
    if "finite_metrics" not in names:
        verdicts.append(judge_finite(report))
    if "lineage" not in names:
        verdicts.append(judge_lineage(store, report))
    return sorted(verdicts, key=lambda verdict: list(KINDS).index(verdict.name))


def verdicts_in(report: Mapping[str, Any]) -> list[Verdict]:
    """The verdicts that a report holds."""
    return [Verdict(**fields) for fields in report["gates"]]


def judge_lineage_again(store: Store, report: dict[str, Any], *, with_rows: bool = True) -> list[Verdict]:
    """A report's verdicts, with the lineage judged again, because a checkpoint may have been deleted since.

    Args:
        with_rows: see :func:`resources.registry.gates.lineage.judge_lineage`.
    """
    lineage = judge_lineage(store, report, with_rows=with_rows)
    return [lineage if verdict.name == "lineage" else verdict for verdict in verdicts_in(report)]


def _judge(gate: Gate, store: Store, catalog: Catalog, report: dict[str, Any], pair: Pair) -> list[Verdict]:
    match gate.name:
        case "finite_metrics":
            return [judge_finite(report)]
        case "lineage":
            return [judge_lineage(store, report)]
        case "leakage":
            return [_judge_leakage(gate.chosen, store, catalog, report)]
        case "bounds":
            return [judge_bounds(gate.chosen, report, pair.ours)]
        case "non_inferior":
            return [judge_non_inferior(gate.chosen, pair)]
        case "improvement":
            return [judge_improvement(gate.chosen, pair)]
        case "slices":
            return [judge_slices_against(gate.chosen, pair)]
        case "latency":
            return judge_latency(gate.chosen, report)
        case "size":
            return judge_size(gate.chosen, report)
        case _:
            return [judge_integration(gate.chosen, store, report)]


def _judge_leakage(gate: Leakage, store: Store, catalog: Catalog, report: dict[str, Any]) -> Verdict:
    """Judge whether the test split has nothing in common with the rows that were trained on."""
    spec = stored_spec(report["spec"])
    snapshot = read_snapshot(catalog, report["snapshot"]["digest"])
    taken_by = DatasetSource.model_validate(
        {**snapshot.recipe, "checks": spec.dataset.checks.model_dump(mode="json")}
    )
    checks = check_leaks(
        Dataset(store, snapshot.name, snapshot.digest),
        taken_by,
        gate.accept,
        gate.ignore or (),
        held_out=report["split"],
    )
    wrong = [check for check in checks if not check.passed]
    if not wrong:
        return Verdict("leakage", PASS, "; ".join(check.reason for check in checks))
    remedies = {
        "leaked_features": "split by group (dataset.group), or leave copies out",
        "leaked_rows": "split by group (dataset.group) of columns of these alone, or leave copies out",
        "leaked_groups": "split by group (dataset.group)",
        "time_order": "split by time (dataset.split_times)",
        "lone_predictor": (
            "leave it out; if it is known when the model is used, accept it: gates: [{leakage: {accept: "
            "[COLUMN]}}]"
        ),
    }
    return Verdict("leakage", FAIL, "; ".join(f"{check.reason}: {remedies[check.name]}" for check in wrong))
