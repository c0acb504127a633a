"""The tool ``start_sweep``: a dry run says what a sweep would take, and only its code starts that sweep."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any

import yaml
from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.agents.arguments import Argument, Tool
from resources.agents.budget import Reply
from resources.agents.desk import Desk
from resources.agents.marking import clean
from resources.catalog import IntentRow, SweepRow, utcnow
from resources.datasets.over_http import check_over_http
from resources.datasets.snapshot_catalog import dataset_of, find_snapshot, refuse_deprecated
from resources.datasets.snapshots import find_or_take_snapshot
from resources.execution.concurrency import concurrency_of
from resources.execution.external_loops import check_study
from resources.scheduling import intents
from resources.scheduling.gpu_hours import Forecast, check_gpu_hours
from resources.scheduling.sweeps import open_sweep
from resources.scheduling.warm_start import warm_start_sources
from resources.search.rules import max_trials, rules_of
from resources.search.state import Halving
from resources.source_files.places import listed_places
from resources.sweep_spec import SweepSpec, parse_spec
from resources.sweep_spec.lint import lint
from resources.sweep_spec.needs import needs_in_words
from resources.sweep_spec.yaml_text import read_yaml

REPEATED_WITHIN = timedelta(days=1)
"""A start that is repeated within this time, by the same agent, starts nothing more."""
_MAX_REPEATED = 500  # of an agent's newest intents


def start_sweep(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Check a spec and say what it would take; with the dry run's code, start it."""
    desk.agent.check_writes("start_sweep")
    driver: intents.Driver = asked_for["driver"]
    spec = _checked_spec(desk, asked_for["spec"], driver)
    forecast = check_gpu_hours(desk.catalog, spec)
    code = _code_of(desk, spec, driver)
    if asked_for["dry_run"]:
        _describe(reply, spec, forecast)
        reply.add(f"confirm={code}")
        reply.note("nothing was started; to start it, repeat this with dry_run=false and this confirm")
        return
    if asked_for["confirm"] != code:
        raise InvalidInput(
            f"confirm = {asked_for['confirm']!r:.40} is not accepted: it is not that of this spec's dry run; "
            "call start_sweep with dry_run=true and repeat its confirm"
        )
    sweep, is_new = _start(desk, spec, driver, code)
    if is_new:
        reply.add(f"started sweep {sweep}, project {spec.project}")
    else:
        reply.add(f"sweep {sweep} was started by the same call before; nothing more was started")
    reply.note("sweep_status says how it goes; to start a second equal one, change its seed")


def _checked_spec(desk: Desk, text: str, driver: intents.Driver) -> SweepSpec:
    """The spec, checked as a launch over HTTP checks it; nothing that it names is imported.

    Raises:
        InvalidInput: naming every wrong field.
        NotFound: it is for a project that the agent may not see.
    """
    try:
        # Aliases of aliases make a text of a kilobyte gigabytes of data.
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise InvalidInput("spec is not accepted: it has an alias (*name); write the value itself")
        data = read_yaml(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"spec is not accepted: it is no YAML: {error}") from None
    if not isinstance(data, dict):
        raise InvalidInput(
            "spec is not accepted: give a sweep's spec in YAML, as docs/search.md describes it"
        )
    for name in (data.get("name"), data.get("project")):
        if isinstance(name, str):
            desk.agent.check(name, f"project {name!r}")
    with desk.catalog.read() as session:
        visible = _visible_snapshots(desk, session)
    if "dataset" not in data and isinstance(data.get("snapshot"), str):
        snapshot = find_snapshot(desk.catalog, data["snapshot"], visible)
        data = {**data, "dataset": dataset_of(snapshot), "snapshot": snapshot.digest}
    spec = parse_spec(data, trains=driver != "api")
    if desk.agent.over_http:
        check_over_http(spec, listed_places(), trains=driver != "api")
    if spec.restored_from is not None:
        desk.agent.check(spec.restored_from.project, "such a run")
    if spec.snapshot is not None:
        refuse_deprecated(find_snapshot(desk.catalog, spec.snapshot, visible), "snapshot")
    if driver == "sensors":
        concurrency_of(spec)
    else:
        check_study(spec)
    return spec


def _describe(reply: Reply, spec: SweepSpec, forecast: Forecast) -> None:
    trials = max_trials(spec)
    ladders = rules_of(spec).ladders
    reply.add(
        f"{spec.name} is in order: {clean(spec.objective.direction)} {clean(spec.objective.metric)}, "
        f"{spec.strategy.name}, up to {trials} trials, {clean(spec.rungs, 60)}"
    )
    longest = max(ladder[-1] for ladder in ladders)
    reply.add(f"budget: about {_expected_epochs(spec):.0f} epochs, at most {trials * longest}")
    for line in needs_in_words(spec):
        reply.add(clean(line, 100))
    reply.add(clean(str(forecast), 100))
    reply.add_rows(
        [f"note: {clean(warning, 100)}" for warning in lint(spec)], "notes", lambda _: "halving check"
    )


def _expected_epochs(spec: SweepSpec) -> float:
    """Epochs that the search is expected to train: with halving by η one trial in η^k gets beyond rung k."""
    rules = rules_of(spec)
    factor = 1
    if isinstance(rules.early_stopping, Halving):
        factor = rules.early_stopping.reduction_factor
    epochs = 0.0
    for bracket, started in Counter(map(rules.bracket, range(max_trials(spec)))).items():
        before = 0
        for rung, budget in enumerate(rules.ladders[bracket]):
            epochs += started * factor**-rung * (budget - before)
            before = budget
    if rules.final:
        epochs += rules.final.seeds * rules.final.epochs
    return epochs


def _start(desk: Desk, spec: SweepSpec, driver: intents.Driver, code: str) -> tuple[str, bool]:
    """Record the intent, and open the sweep where Dagster has nothing to do; its id and whether it is new."""
    here = driver == "api" and spec.snapshot is not None and spec.judged_by is None
    snapshot = ""
    sources: list[str] = []
    if here:
        # Before the transaction: within it a second connection would be waited for while this one is held.
        snapshot = find_or_take_snapshot(desk.store, desk.catalog, spec).digest
        sources = warm_start_sources(desk.catalog, spec, desk.agent.projects)
    with desk.catalog.write(exclusive=True) as session:
        repeated = _repeated(desk, session, code)
        if repeated is not None:
            return repeated, False
        row = intents.add(
            session, spec, kind="study", driver=driver, actor=desk.agent.actor, projects=desk.agent.projects
        )
        row.payload = {**row.payload, "confirm": code}
        if here:
            open_sweep(
                desk.catalog,
                spec,
                snapshot,
                driver="api",
                commit=None,
                sweep=row.sweep,
                sources=sources,
                within=session,
            )
            row.status = intents.DONE
        desk.note_write(session, "start_sweep", row.sweep)
        return row.sweep, True


def _repeated(desk: Desk, session: Session, code: str) -> str | None:
    newest = (
        select(IntentRow)
        .where(IntentRow.actor == desk.agent.actor, IntentRow.created_at >= utcnow() - REPEATED_WITHIN)
        .where(IntentRow.status.not_in((intents.CANCELED, intents.FAILED)))
        .order_by(IntentRow.created_at.desc())
        .limit(_MAX_REPEATED)
    )
    return next((row.sweep for row in session.scalars(newest) if row.payload.get("confirm") == code), None)


def _code_of(desk: Desk, spec: SweepSpec, driver: str) -> str:
    """The dry run's code: of the spec as it was checked, its driver and who asks."""
    return sha256(f"{desk.agent.actor}\n{driver}\n{spec.canonical_json()}".encode()).hexdigest()[:12]


def _visible_snapshots(desk: Desk, session: Session) -> set[str] | None:
    projects = desk.agent.visible_projects
    if projects is None:
        return None
    return set(session.scalars(select(SweepRow.snapshot).where(SweepRow.project.in_(projects))))


TOOLS = (
    Tool(
        "start_sweep",
        "Start a sweep. First dry_run=true: checks, cost, and the confirm code that dry_run=false repeats.",
        (
            Argument("spec", about="YAML"),
            Argument("dry_run", "boolean", default=True),
            Argument("confirm", default=""),
            Argument(
                "driver", about="api: trials go to ask_tell", default="sensors", choices=("sensors", "api")
            ),
        ),
        start_sweep,
        effect="writes",
    ),
)
