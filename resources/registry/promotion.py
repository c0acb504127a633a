"""From a report to a registered version: its gates, and what the registry records of the winner."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from halving import InvalidInput, Store
from resources.backend import Backend
from resources.catalog import ModelVersionRow
from resources.catalog.models import champion_of
from resources.evaluation.report import EvaluationReport, evaluate_sweep, load_report
from resources.registry.artifacts import manifest_of_winner
from resources.registry.events import MANIFEST, add_event
from resources.registry.gates.against_champion import Groups
from resources.registry.gates.judge import judge_gates, judge_lineage_again, verdicts_in
from resources.registry.gates.verdict import PASS, Verdict, overall, refusal, status_of_refused
from resources.registry.publishing import publish
from resources.registry.stages import find
from resources.registry.versions import ChampionChanged, judge, register, register_held
from resources.sweep_spec import stored_spec

_log = logging.getLogger(__name__)


def evaluate(backend: Backend, sweep: str) -> tuple[EvaluationReport, list[Verdict]]:
    """Make a sweep's report with the verdicts of its gates.

    If a gate does not pass, a sweep that has just ended its search becomes rejected or held.
    """
    report = make_report(backend, sweep)
    verdicts = verdicts_in(report.data)
    if overall(verdicts) != PASS:
        backend.catalog.end_sweep(sweep, status_of_refused(verdicts), only_from="evaluating")
    return report, verdicts


def make_report(backend: Backend, sweep: str) -> EvaluationReport:
    """Make a sweep's report, with the verdicts of its gates; the sweep's status stays."""

    def judge(report: dict[str, Any], groups: Groups) -> list[dict[str, Any]]:
        return [verdict.as_dict() for verdict in judge_gates(backend.store, backend.catalog, report, groups)]

    return evaluate_sweep(backend.store, backend.catalog, sweep, judge)


def promote_winner(
    backend: Backend,
    first_report: EvaluationReport,
    on_new_report: Callable[[EvaluationReport, list[Verdict]], None] = lambda report, verdicts: None,
) -> tuple[ModelVersionRow, EvaluationReport]:
    """Register a report's winner if it passes every gate, and end its sweep.

    It is judged against the present champion. If that is not the champion of ``first_report``, because
    another sweep has ended since or someone has promoted or archived a version, the report is made again, and
    ``on_new_report`` is called with it and its verdicts.

    Returns:
        The version, and the report by which it passed.

    Raises:
        GateFailed: a gate failed; the message says which and why.
        TooLittleEvidence: no gate failed, and one has too little evidence.
    """
    sweep = first_report.data["sweep"]
    report = _complete_report(backend, first_report)
    auto_promote = stored_spec(report.data["spec"]).auto_promote
    while True:
        verdicts = judge_lineage_again(backend.store, report.data)
        if report is not first_report:
            on_new_report(report, verdicts)
        champion = report.data["champion"]
        against = champion and champion["version"]
        if overall(verdicts) != PASS:
            if against and against != _champion_version(backend, report.data["name"]):
                report = make_report(backend, sweep)
                continue
            backend.catalog.end_sweep(sweep, status_of_refused(verdicts), only_from="evaluating")
            raise refusal(sweep, verdicts, report.path)
        try:
            row = register(
                backend.catalog,
                new_version(backend.store, report, verdicts),
                judged_against=against,
                auto_promote=auto_promote,
            )
        except ChampionChanged:
            report = make_report(backend, sweep)
        else:
            backend.catalog.end_sweep(sweep, "finished")
            for problem in publish(backend.store, backend.catalog):
                _log.warning("%s", problem)
            return row, report


def register_held_winner(
    backend: Backend, model: str, sweep: str, *, actor: str, note: str
) -> ModelVersionRow:
    """Register a winner that its gates hold back, with their verdicts; only force promotes it.

    Raises:
        InvalidInput: the sweep is one of another model.
        NoWinner: it has no report.
        NotFound: there is no such sweep.
        StoreError: the report's bytes do not hash to its digest.
    """
    with backend.catalog.read() as session:
        name = backend.catalog.sweep(session, sweep).name
    if name != model:
        raise InvalidInput(
            f"sweep {sweep} is not accepted: its winner would be a version of model {name!r}, not of "
            f"{model!r}"
        )
    report = _complete_report(backend, load_report(backend.store, backend.catalog, sweep))
    new = new_version(backend.store, report, verdicts_in(report.data))
    champion = report.data["champion"]
    judged_against = champion and champion["version"]
    return register_held(backend.catalog, new, judged_against=judged_against, actor=actor, note=note)


def _complete_report(backend: Backend, report: EvaluationReport) -> EvaluationReport:
    """Make a report again if it has no verdicts or no code, as those of old versions of Halving.

    Its spec may be of an older form. A report by an evaluator never has code.
    """
    data = report.data
    has_code = "code" in data or data["spec"].get("predictor") is None
    if data.get("gates") is not None and has_code:
        return report
    return make_report(backend, data["sweep"])


def _champion_version(backend: Backend, model: str) -> str | None:
    with backend.catalog.read() as session:
        champion = champion_of(session, model)
    if champion is None:
        return None
    return champion.version


def new_version(store: Store, report: EvaluationReport, verdicts: Sequence[Verdict]) -> ModelVersionRow:
    """A report's winner as a row for :func:`register`; writes its manifest to the store."""
    manifest = manifest_of_winner(store, report)
    winner = report.data["winner"]
    return ModelVersionRow(
        model=manifest.model,
        checkpoint=manifest.checkpoint,
        sweep=report.data["sweep"],
        trial=winner["trial"],
        run=manifest.run,
        snapshot=manifest.snapshot,
        framework=manifest.framework,
        input_schema=manifest.input_schema,
        output_schema=manifest.output_schema,
        metrics=manifest.metrics,
        report=report.digest,
        gates=verdicts_of(verdicts),
        manifest=manifest.write(store),
    )


def verdicts_of(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Verdicts in the form of a version's column: their fields, and ``passed``."""
    return [{**verdict.as_dict(), "passed": verdict.passed} for verdict in verdicts]


def judge_again(
    backend: Backend, model: str, version: str, *, actor: str
) -> tuple[ModelVersionRow, EvaluationReport]:
    """Judge a sweep's version against the present champion, and keep the new report and its verdicts.

    A champion is not judged against itself. But a champion without a manifest, from before manifests were
    kept, gets one, so that it can be loaded; if its report has no code, with the code of now. Its report and
    its verdicts stay.

    Raises:
        InvalidInput: it is the champion itself, or a client registered it.
        NotFound: there is no such version.
    """
    with backend.catalog.read() as session:
        row = find(session, model, version)
        champion = champion_of(session, model)
        is_old = row.sweep is not None and row.manifest is None and row is champion
        if row.sweep is None or (row is champion and not is_old):
            why = "it is the champion"
            if row.sweep is None:
                why = "a client registered it, and no sweep's winner is known of it"
            raise InvalidInput(f"{model} {version} is not judged again: {why}")
        sweep = row.sweep
    if is_old:
        return _write_manifest(
            backend, model, version, load_report(backend.store, backend.catalog, sweep), actor
        )
    report = make_report(backend, sweep)
    new = new_version(backend.store, report, verdicts_in(report.data))
    champion_data = report.data["champion"]
    judged_against = champion_data and champion_data["version"]
    with backend.catalog.write(exclusive=True) as session:
        row = find(session, model, version)
        if new.checkpoint != row.checkpoint:
            raise InvalidInput(
                f"{model} {version} is not judged again: sweep {sweep} has another winner now, "
                f"{new.checkpoint}"
            )
        judge(session, row, new, judged_against, actor)
    return row, report


def _write_manifest(
    backend: Backend, model: str, version: str, report: EvaluationReport, actor: str
) -> tuple[ModelVersionRow, EvaluationReport]:
    manifest = manifest_of_winner(backend.store, report)
    digest = manifest.write(backend.store)
    with backend.catalog.write(exclusive=True) as session:
        row = find(session, model, version)
        if manifest.checkpoint != row.checkpoint:
            raise InvalidInput(
                f"{model} {version} gets no manifest: sweep {row.sweep} has another winner now, "
                f"{manifest.checkpoint}"
            )
        row.manifest = digest
        note = "there was none; with the predictor's code of now"
        if report.data.get("code"):
            note = "there was none; with the code that judged it"
        add_event(session, model, MANIFEST, actor, version=row, note=note)
    return row, report
