"""From a report to a registered version: the gates, the winner's lineage, and what the registry records of it."""

from collections.abc import Callable
from typing import Any

from halving import Dataset, HalvingError, Store
from halving.records.run_record import RunRecords
from resources.backend import Backend
from resources.catalog import ModelVersionRow
from resources.catalog.models import champion_of
from resources.evaluation.report import EvaluationReport, evaluate_sweep
from resources.registry.gates import Gate, GateFailed, check_gates
from resources.registry.versions import ChampionChanged, register
from resources.sweep_spec import stored_spec


def evaluate(backend: Backend, sweep: str) -> tuple[EvaluationReport, list[Gate]]:
    """Make a sweep's report and check the gates; when one fails, a sweep that has just ended its search becomes rejected."""
    report = evaluate_sweep(backend.store, backend.catalog, sweep)
    gates = judge(backend.store, report)
    if not all(gate.passed for gate in gates):
        backend.catalog.end_sweep(sweep, "rejected", only_from="evaluating")
    return report, gates


def judge(store: Store, report: EvaluationReport) -> list[Gate]:
    """The outcome of the spec's gates for a report."""
    return check_gates(stored_spec(report.data["spec"]).gates, report.data, missing_lineage(store, report.data))


def promote_winner(
    backend: Backend, known: EvaluationReport, made_again: Callable[[EvaluationReport, list[Gate]], None] = lambda report, gates: None
) -> tuple[ModelVersionRow, EvaluationReport]:
    """Register a report's winner if it passes every gate, and end its sweep.

    It is judged against the version that is the champion at this moment: when that is not the ``known`` report's, because another sweep
    ended meanwhile or someone changed or archived it, the report is made again, and ``made_again`` is called with it and its gates.

    Returns:
        The version, and the report by which it passed.

    Raises:
        GateFailed: saying which gate and why.
    """
    report, sweep, auto_promote = known, known.data["sweep"], stored_spec(known.data["spec"]).auto_promote
    while True:
        gates = judge(backend.store, report)
        if report is not known:
            made_again(report, gates)
        champion = report.data["champion"]
        against = champion["version"] if champion else None
        if failed := [gate for gate in gates if not gate.passed]:
            if against and against != _champion_version(backend, report.data["name"]):
                report = evaluate_sweep(backend.store, backend.catalog, sweep)
                continue
            backend.catalog.end_sweep(sweep, "rejected", only_from="evaluating")
            reasons = "; ".join(f"{gate.name}: {gate.reason}" for gate in failed)
            raise GateFailed(f"sweep {sweep} was not promoted: {reasons}. The report says more: {report.path}")
        try:
            row = register(backend.catalog, new_version(backend.store, report), judged_against=against, auto_promote=auto_promote)
        except ChampionChanged:
            report = evaluate_sweep(backend.store, backend.catalog, sweep)
        else:
            backend.catalog.end_sweep(sweep, "finished")
            return row, report


def _champion_version(backend: Backend, model: str) -> str | None:
    with backend.catalog.read() as session:
        champion = champion_of(session, model)
    return champion.version if champion else None


def missing_lineage(store: Store, report: dict[str, Any]) -> list[str]:
    """What of the winner's origin is missing: run record, code, checkpoint or snapshot."""
    missing = []
    winner, records = report["winner"], RunRecords(store, report["name"], report["winner"]["key"])
    try:
        record = records.read()
    except HalvingError as error:
        return [f"run record ({error})"]
    if record["params"] != winner["params"]:
        missing.append("params: those in the run's record differ from the catalog's")
    git = record["provenance"].get("git") or {}
    if not (git.get("commit") or git.get("patch") or record["parent"].get("trainable_sha256")):
        missing.append("code: neither a git commit nor the trainable's digest was recorded")
    if git and git.get("dirty") is None:
        missing.append(f"code: git could not report what differs from the commit ({git.get('error')})")
    if record["parent"].get("snapshot") != report["snapshot"]["digest"]:
        missing.append(f"snapshot: the run trained on {record['parent'].get('snapshot')}")
    for title, digest in (("checkpoint", winner["checkpoint"]), ("dirty patch", git.get("patch"))):
        if digest and not store.has_blob(digest):
            missing.append(f"{title}: no blob {digest} in the store {store.root}")
    if winner["checkpoint"] not in [saved.digest for saved in records.checkpoints()]:
        missing.append("checkpoint: the run's record does not list it")
    return missing


def new_version(store: Store, report: EvaluationReport) -> ModelVersionRow:
    """What the registry is to record about a report's winner, for :func:`register`."""
    data, winner = report.data, report.data["winner"]
    record = RunRecords(store, data["name"], winner["key"]).read()
    dataset = Dataset(store, data["spec"]["dataset"]["name"], data["snapshot"]["digest"])
    schema = dict(dataset.manifest["schema"])
    output: dict[str, Any] = {"type": schema.pop(dataset.target)}
    if data["labels"] is not None:
        output["classes"] = data["labels"]
    packages = record["provenance"]["packages"]
    framework = next((f"{name} {packages[name]}" for name in ("torch", "tensorflow", "jax", "scikit-learn") if name in packages), "python")
    return ModelVersionRow(
        model=data["name"],
        checkpoint=winner["checkpoint"],
        sweep=data["sweep"],
        trial=winner["trial"],
        run=winner["key"],
        snapshot=data["snapshot"]["digest"],
        framework=framework,
        input_schema=schema,
        output_schema=output,
        metrics=data["metrics"],
        report=report.digest,
    )
