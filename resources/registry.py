"""The model registry: gates before promotion, versions, and which version is champion."""

import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import HalvingError, InvalidInput, NotFound
from resources.catalog import Catalog, ModelVersionRow, utcnow
from resources.evaluation import HIGHER_IS_BETTER
from resources.spec import Gates


class GateFailed(HalvingError, RuntimeError):
    """The winner did not pass a gate; nothing was promoted."""


@dataclass(frozen=True)
class Gate:
    """One condition on promotion, checked. The name is that of the asset check."""

    name: str
    passed: bool
    reason: str


@dataclass(frozen=True)
class NewVersion:
    """What promotion registers about a checkpoint."""

    model: str
    checkpoint: str
    sweep: str
    trial: int
    run: str
    snapshot: str
    framework: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    metrics: dict[str, float]
    report: str


def check_gates(gates: Gates, report: dict[str, Any], missing_lineage: list[str]) -> list[Gate]:
    """Judge a report: finite metrics, complete lineage, and not worse than the champion beyond the margin.

    Args:
        gates: the spec's.
        report: the evaluation report (``metrics``, ``champion``).
        missing_lineage: what could not be found of the checkpoint's origin.
    """
    wrong = sorted(name for name, value in report["metrics"].items() if not _finite(value))
    finite = Gate("finite_metrics", not wrong, f"not finite: {wrong}" if wrong else "every test metric is finite")
    whole = Gate(
        "lineage_complete",
        not missing_lineage,
        f"missing: {missing_lineage}" if missing_lineage else "run record, code, checkpoint and snapshot are all there",
    )
    return [finite, whole, _within_bounds(report), _against_champion(gates, report)]


def _within_bounds(report: dict[str, Any]) -> Gate:
    name, bounds, winner = "within_bounds", report["spec"].get("bounds", {}), report["winner"]
    if not bounds:
        return Gate(name, True, "the spec bounds no metric")
    stands = ", ".join(f"{metric} {_number(winner['metrics'][metric])}" for metric in bounds)
    return Gate(name, winner["violation"] == 0, f"{stands}, accepted are {bounds}")


def _against_champion(gates: Gates, report: dict[str, Any]) -> Gate:
    name, champion = "not_worse_than_champion", report["champion"]
    if champion is None:
        return Gate(name, True, "there is no champion yet")
    title = f"champion {champion['model']} {champion['version']}"
    if champion["error"]:
        way_out = f"mend it, or take it out of use: halving archive {champion['model']} {champion['version']}"
        return Gate(name, False, f"the {title} could not be evaluated on this test split: {champion['error']}; {way_out}")
    metric = gates.metric or default_metric(report["metrics"])
    if metric not in report["metrics"] or metric not in champion["metrics"]:
        return Gate(name, False, f"gates.metric = {metric!r} is not among the test metrics {sorted(report['metrics'])}")
    ours, theirs = report["metrics"][metric], champion["metrics"][metric]
    worse = theirs - ours if HIGHER_IS_BETTER[metric] else ours - theirs
    said = f"{metric} {_number(ours)} against {_number(theirs)} of the {title}, margin {gates.margin:g}"
    return Gate(name, _finite(worse) and worse <= gates.margin, said)


def default_metric(metrics: dict[str, float]) -> str:
    """The metric that versions are compared by when the spec names none."""
    return "accuracy" if "accuracy" in metrics else "rmse"


def champion_of(session: Session, model: str) -> ModelVersionRow | None:
    return session.scalar(select(ModelVersionRow).where(ModelVersionRow.model == model, ModelVersionRow.stage == "champion"))


def versions_of(session: Session, model: str | None = None) -> list[ModelVersionRow]:
    """Versions of one model, or of all, newest last."""
    query = select(ModelVersionRow).order_by(ModelVersionRow.model, ModelVersionRow.created_at)
    return list(session.scalars(query.where(ModelVersionRow.model == model) if model else query))


def register(catalog: Catalog, new: NewVersion, *, auto_promote: bool) -> ModelVersionRow:
    """Add a version: champion when it is the model's first or on ``auto_promote``, else staging.

    Registering a sweep's winner again gives the version that it already has.
    """
    with catalog.write(exclusive=True) as session:
        earlier = versions_of(session, new.model)
        for row in earlier:
            if row.sweep == new.sweep:
                return row
        row = ModelVersionRow(version=next_version(earlier, new), stage="staging", created_at=utcnow(), **new.__dict__)
        session.add(row)
        session.flush()
        if auto_promote or champion_of(session, new.model) is None:
            _make_champion(session, row)
        return row


def promote(catalog: Catalog, model: str, version: str) -> ModelVersionRow:
    """Make a version the champion; the one before is archived. Going back to an archived version is the same call.

    Raises:
        NotFound: naming the versions there are.
    """
    with catalog.write(exclusive=True) as session:
        row = _version(session, model, version)
        _make_champion(session, row)
        return row


def archive(catalog: Catalog, model: str, version: str) -> ModelVersionRow:
    """Take a version out of use. Without a champion, the next winner that passes its gates becomes it.

    Raises:
        NotFound: naming the versions there are.
    """
    with catalog.write(exclusive=True) as session:
        row = _version(session, model, version)
        row.stage = "archived"
        return row


def next_version(earlier: list[ModelVersionRow], new: NewVersion) -> str:
    """Semantic version: major when a schema changes (callers must adapt), minor for another snapshot, else patch."""
    if not earlier:
        return "1.0.0"
    newest = max(earlier, key=lambda row: parse_version(row.version))
    major, minor, patch = parse_version(newest.version)
    if newest.input_schema != new.input_schema or newest.output_schema != new.output_schema:
        return f"{major + 1}.0.0"
    if newest.snapshot != new.snapshot:
        return f"{major}.{minor + 1}.0"
    return f"{major}.{minor}.{patch + 1}"


def parse_version(version: str) -> tuple[int, int, int]:
    """The three numbers of a semantic version.

    Raises:
        InvalidInput: it is not one.
    """
    try:
        major, minor, patch = (int(part) for part in version.split("."))
    except ValueError:
        raise InvalidInput(f"version {version!r} is not accepted: give MAJOR.MINOR.PATCH, for example 1.0.0") from None
    return major, minor, patch


def _version(session: Session, model: str, version: str) -> ModelVersionRow:
    row = session.get(ModelVersionRow, (model, version))
    if row is None:
        known = [f"{row.model} {row.version} ({row.stage})" for row in versions_of(session)]
        raise NotFound(f"no version {version!r} of model {model!r}; there are {known or 'no versions yet: run a sweep first'}")
    return row


def _make_champion(session: Session, row: ModelVersionRow) -> None:
    before = champion_of(session, row.model)
    if before is row:
        return
    if before is not None:
        before.stage = "archived"
        session.flush()  # at any time at most one champion, which the index holds
    row.stage = "champion"


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
