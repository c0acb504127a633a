"""The costs of a sweep, a model or a project, by purpose and in other ways."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from halving import Store
from halving.errors import InvalidInput, NotFound
from halving.query.runs import describe_choices
from resources.analysis.costs.ledger import held_by_runs, held_of
from resources.analysis.costs.prices import Prices
from resources.analysis.costs.storage import Stored, stored_of
from resources.analysis.costs.sums import RERUNS, SCRIPTS, By, Line, lines_by, money, saved_cost, total
from resources.analysis.spent import saved_by_early_stopping
from resources.analysis.summary import state_of
from resources.catalog import Catalog, ModelVersionRow, ReportRow, RungResultRow, SweepRow
from resources.catalog.models import champion_of, models_of
from resources.catalog.trial_key import trial_key
from resources.search.decide import ranking
from resources.tenancy.gpu_hours import GpuHours, gpu_hours_of
from resources.tenancy.projects import names_of

Kind = Literal["project", "model"]
"""What a name of costs can be of."""
_NAMED_KINDS = "sweeps, models and projects"


@dataclass(frozen=True)
class SweepCost:
    """The cost of one sweep so far.

    Attributes:
        purposes: what the cost was for: the winner, pruned trials, the final training and so on. They add up
            to ``trained``.
        evaluation: the cost of its report, by the cores that its spec gives a trial; 0 without a report.
        saved: what early stopping saved, by the same estimate as on the leaderboard.
    """

    sweep: str
    project: str
    model: str
    trained: Line
    purposes: list[Line]
    evaluation: float
    saved: float
    prices: Prices

    @property
    def cost(self) -> float:
        """The cost of all trainings and of the report, in the currency of the prices."""
        return self.trained.cost + self.evaluation

    def with_evaluation(self, cpu_seconds: float) -> "SweepCost":
        """The same after an evaluation that took so many seconds of a core."""
        return replace(self, evaluation=self.evaluation + cpu_seconds / 3600 * self.prices.cpu_hour.price)

    def as_dict(self) -> dict[str, Any]:
        """The cost as plain data, for a page, a report and ``--json``."""
        return {
            "sweep": self.sweep,
            "cost": self.cost,
            "currency": self.prices.currency,
            "prices_of": self.prices.date.isoformat(),
            "gpu_hours": self.trained.gpu_hours,
            "purposes": [line.as_dict() for line in self.purposes],
            "evaluation": self.evaluation,
            "saved": self.saved,
            "lost": self.trained.lost,
            "text": self.in_words(),
        }

    def in_words(self) -> str:
        """The cost in a line, for people."""
        parts = [f"{money(self.cost, self.prices)} ({self.prices.about()})"]
        if self.saved:
            parts.append(f"{money(self.saved, self.prices)} saved by early stopping")
        if self.trained.lost:
            lost = money(self.trained.lost, self.prices)
            parts.append(f"at most {lost} for work that crashed or was preempted")
        return ", ".join(parts)


def sweep_cost(catalog: Catalog, sweep: str, prices: Prices) -> SweepCost:
    """Work out the cost of a sweep until now.

    Raises:
        NotFound: no such sweep.
    """
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        state = state_of(session, row)
        ranked = ranking(state)
        winners = {}
        if ranked:
            winners[sweep] = ranked[0][0].number
        rows = session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep))
        results = {(result.trial, result.rung): result for result in rows}
        held = held_of(session, catalog.now(), SweepRow.id == sweep, winners=winners)
        evaluation = _evaluation(session, [sweep], prices)
    saved = [
        (trial_key(sweep, trial.trial), trial.attempt, trial.seconds)
        for trial in saved_by_early_stopping(state, results)
    ]
    purposes = lines_by("purpose", held, prices)
    return SweepCost(
        sweep,
        row.project,
        row.name,
        total(held, prices),
        purposes,
        evaluation,
        saved_cost(held, saved, prices),
        prices,
    )


@dataclass(frozen=True)
class Costs:
    """The costs of a project, of a model or of everything.

    Attributes:
        of: the name; None for everything.
        kind: whether the name is a project's or a model's; None for everything.
        by: how ``lines`` are grouped.
        trained: the sum of all trainings.
        lines: the sums of the groups.
        runs: the part of ``trained`` for runs of scripts and reruns.
        estimated: the part of the cost of ``runs`` for attempts that still run or were killed. These count
            until their last point.
        elsewhere: the number of attempts at runs that are not counted, because another tool trained them, or
            because their records do not name the hardware.
        evaluation: the cost of all reports.
        champion: the cost of the sweep of the model's champion; None without a champion of a sweep.
        champion_version: the champion's version; None without a champion.
        champion_run: the cost of the run of a champion without a sweep; None if that is not known.
        hours: the project's GPU-hours this month, which only sweeps use; None if they are not limited.
        stored: the bytes that the projects have in the store, and their price.
    """

    of: str | None
    kind: Kind | None
    by: By
    trained: Line
    lines: list[Line]
    runs: Line
    estimated: float
    elsewhere: int
    evaluation: float
    champion: SweepCost | None
    champion_version: str | None
    champion_run: Line | None
    hours: GpuHours | None
    stored: list[Stored]
    prices: Prices

    def as_dict(self) -> dict[str, Any]:
        """The costs as plain data, for ``--json``."""
        trained = self.trained.as_dict()
        del trained["name"]
        del trained["cost"]
        champion = None
        champion_run = None
        hours = None
        if self.champion:
            champion = {"version": self.champion_version, **self.champion.as_dict()}
        if self.champion_run:
            champion_run = {"version": self.champion_version, **self.champion_run.as_dict()}
        if self.hours:
            hours = {**asdict(self.hours), "left": self.hours.left}
        return {
            "of": self.of,
            "kind": self.kind,
            "by": self.by,
            "cost": self.trained.cost + self.evaluation,
            "currency": self.prices.currency,
            "prices_of": self.prices.date.isoformat(),
            **trained,
            "evaluation": self.evaluation,
            "lines": [line.as_dict() for line in self.lines],
            "runs": {**self.runs.as_dict(), "estimated": self.estimated, "elsewhere": self.elsewhere},
            "champion": champion,
            "champion_run": champion_run,
            "gpu_hours_this_month": hours,
            "storage": [stored.as_dict() for stored in self.stored],
        }


def costs(
    store: Store, catalog: Catalog, of: str | None, by: By, prices: Prices, kind: Kind | None = None
) -> Costs:
    """Work out the costs until now of a project, of a model or of everything.

    Args:
        of: the name of a project or a model; None for everything.
        by: how the costs are grouped.
        kind: whether the name is a project's or a model's. By default it is the project's, if there is one,
            unless a model of this name has sweeps in another project.

    Raises:
        NotFound: nothing has this name.
        InvalidInput: a project and another project's model have the name, and ``kind`` is None.
        StoreError: the store cannot be read.
    """
    on_store = set(_projects(store))
    with catalog.read() as session:
        chosen = _find_chosen(session, of, kind, on_store, catalog.now())
        sweeps = session.execute(select(SweepRow.id, SweepRow.project).where(*chosen.sweeps)).all()
        held = held_of(session, catalog.now(), *chosen.sweeps, winners=_winners(session, *chosen.sweeps))
        runs = held_by_runs(session, chosen.projects, by_run=by == "trial")
        champion = chosen.champion
        champion_run = None
        if champion and not champion.sweep:
            champion_run = _cost_of_run(session, champion, prices)
        evaluation = _evaluation(session, [row.id for row in sweeps], prices)
    everything = [*held, *runs.held]
    champion_version = None
    champion_cost = None
    if champion:
        champion_version = champion.version
        if champion.sweep:
            champion_cost = sweep_cost(catalog, champion.sweep, prices)
    stored_projects = on_store
    if chosen.projects is not None:
        stored_projects = on_store & {*chosen.projects, *(row.project for row in sweeps)}
    return Costs(
        of=of,
        kind=chosen.kind,
        by=by,
        trained=total(everything, prices),
        lines=lines_by(by, everything, prices),
        runs=replace(total(runs.held, prices), name=f"{SCRIPTS} and {RERUNS}"),
        estimated=sum((held.cost(prices) for held in runs.held if held.estimated), 0.0),
        elsewhere=runs.elsewhere,
        evaluation=evaluation,
        champion=champion_cost,
        champion_version=champion_version,
        champion_run=champion_run,
        hours=chosen.hours,
        stored=[stored_of(store, project, prices) for project in sorted(stored_projects)],
        prices=prices,
    )


def _cost_of_run(session: Session, version: ModelVersionRow, prices: Prices) -> Line | None:
    """The cost of a version's run; None if it has no run, or if the run's resources are not known."""
    if version.run is None or version.project is None:
        return None
    held = held_by_runs(session, [version.project], version.run).held
    if not held:
        return None
    return replace(total(held, prices), name=f"{version.project}/{version.run}")


def sweep_lines(catalog: Catalog, sweep: str, by: By, prices: Prices) -> list[Line]:
    """A sweep's costs grouped by ``by``."""
    is_sweep = SweepRow.id == sweep
    with catalog.read() as session:
        held = held_of(session, catalog.now(), is_sweep, winners=_winners(session, is_sweep))
    return lines_by(by, held, prices)


@dataclass(frozen=True)
class _Chosen:
    """The sweeps and runs whose costs are wanted.

    Attributes:
        sweeps: conditions on the sweeps.
        projects: the projects whose runs of scripts and reruns count; None for all.
    """

    kind: Kind | None
    sweeps: tuple[ColumnElement[bool], ...]
    projects: tuple[str, ...] | None
    champion: ModelVersionRow | None
    hours: GpuHours | None


def _find_chosen(
    session: Session, of: str | None, kind: Kind | None, on_store: set[str], now: float
) -> _Chosen:
    """Find the sweeps and runs that a name means; see :func:`costs`."""
    if of is None:
        return _Chosen(None, (), None, None, None)
    names = tuple(names_of(session, of))
    hours = gpu_hours_of(session, of, now)
    champion = champion_of(session, of)
    homes = set(session.scalars(select(SweepRow.project).where(SweepRow.name == of).distinct()))
    if champion and champion.project:
        homes.add(champion.project)
    of_project = session.scalar(select(SweepRow.id).where(SweepRow.project.in_(names)).limit(1))
    is_project = bool(of_project or hours or on_store & {*names})
    is_model = bool(homes or champion)
    exists = {"project": is_project, "model": is_model, None: is_project or is_model}[kind]
    if not exists:
        raise NotFound(
            f"no {kind or 'sweep, model or project'} {of!r}; "
            f"{describe_choices(_NAMED_KINDS, of, _names(session, on_store))}"
        )
    others = sorted({names_of(session, home)[0] for home in homes.difference(names)})
    if kind is None and is_project and others:
        raise InvalidInput(
            f"{of!r} is not accepted: it is a project, and a model of {', '.join(others)}; say which is "
            f"meant: --project {of} or --model {of}"
        )
    if kind == "model" or not is_project:
        return _Chosen("model", (SweepRow.name == of,), (), champion, None)
    if others:  # then the champion is of another project's model
        champion = None
    return _Chosen("project", (SweepRow.project.in_(names),), names, champion, hours)


def _names(session: Session, on_store: set[str]) -> list[str]:
    """All names that costs can be asked of."""
    sweeps = session.execute(select(SweepRow.id, SweepRow.name, SweepRow.project)).all()
    return sorted(
        {name for row in sweeps for name in row} | on_store | {model.name for model in models_of(session)}
    )


def _winners(session: Session, *which: ColumnElement[bool]) -> dict[str, int]:
    """The winning trial of each sweep whose winner became a version.

    The leading trials of other sweeps are not worked out for a sum.
    """
    query = (
        select(ModelVersionRow.sweep, ModelVersionRow.trial)
        .join(SweepRow, SweepRow.id == ModelVersionRow.sweep)
        .where(*which)
    )
    return {won: trial for won, trial in session.execute(query) if won is not None and trial is not None}


def _evaluation(session: Session, sweeps: list[str], prices: Prices) -> float:
    evaluated = set(sweeps)
    query = select(ReportRow.sweep, ReportRow.cpu_seconds)
    if len(sweeps) == 1:
        query = query.where(ReportRow.sweep == sweeps[0])
    seconds = sum(seconds for sweep, seconds in session.execute(query) if sweep in evaluated)
    return seconds / 3600 * prices.cpu_hour.price


def _projects(store: Store) -> list[str]:
    return [name.removeprefix("project=") for name in store.names("runs") if name.startswith("project=")]
