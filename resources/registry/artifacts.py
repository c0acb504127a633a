"""The manifest of a winner, and its export before it is a version."""

from pathlib import Path
from typing import Any

from halving import Dataset, Store
from halving.models.export import export_model
from halving.models.manifest import Manifest
from halving.models.source_code import Code
from halving.records.run_record import RunRecords
from resources.datasets.statistics import all_columns
from resources.evaluation.judged_code import code_here, code_of_report
from resources.evaluation.report import EvaluationReport
from resources.sweep_spec import stored_spec

_FRAMEWORKS = ("torch", "tensorflow", "jax", "scikit-learn")


def manifest_of_winner(store: Store, report: EvaluationReport) -> Manifest:
    """The manifest of a report's winner, with the code that judged it.

    A report from before reports kept their code gets the code of now, so that an old champion has a manifest.

    Raises:
        NotFound: the run's record, the snapshot or the code is gone.
    """
    data = report.data
    winner = report.data["winner"]
    spec = stored_spec(data["spec"])
    record = RunRecords(store, spec.project, winner["key"]).read()
    manifest = Dataset(store, spec.dataset.name, data["snapshot"]["digest"]).manifest
    schema = dict(manifest["schema"])
    statistics = all_columns(manifest)
    output: dict[str, Any] = {"type": schema.pop(manifest["target"])}
    if data.get("labels") is not None:
        output["classes"] = data["labels"]
    packages = record["provenance"]["packages"]
    code = code_of_report(store, data) or code_here(spec) or Code({}, {})
    return Manifest(
        model=data["name"],
        run=winner["key"],
        checkpoint=winner["checkpoint"],
        params=winner["params"],
        predictor=spec.predictor,
        exporter=spec.exporter,
        dataset=spec.dataset.name,
        snapshot=data["snapshot"]["digest"],
        input_schema=schema,
        complete=[name for name in schema if statistics[name]["nulls"] == 0],
        output_schema=output,
        framework=next((f"{name} {packages[name]}" for name in _FRAMEWORKS if name in packages), "python"),
        python=record["provenance"]["python"]["version"],
        requirements=code.requirements(packages),
        code=code.files,
        metrics=data["metrics"],
        report=report.digest,
        train_on=list((record.get("trial") or {}).get("train_on", ["train"])),
        features=[str(feature) for feature in data["spec"]["dataset"].get("features") or []],
    )


def export_candidate(store: Store, report: EvaluationReport, folder: str | Path) -> Path:
    """Export a report's winner before it is a version; returns the folder.

    An integration test loads it in a process of its own: ``halving.load_model(folder).predict(table)``.
    """
    return export_model(
        store,
        manifest_of_winner(store, report),
        folder,
        name=f"{report.data['name']} (candidate of {report.data['sweep']})",
    )
