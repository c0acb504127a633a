"""What people ask of the ledger: what a sweep, a model and a project cost, and what that was for."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from halving import Store
from halving.errors import NotFound
from halving.query.runs import there_are
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

_ASKED = "sweeps, models and projects"


@dataclass(frozen=True)
class SweepCost:
    """What one sweep cost, as far as it has come.

    Attributes:
        purposes: what that was for: the winner, pruned trials, the final training…; they add up to ``trained``, with the evaluation to all.
        evaluation: of its report, by the cores that its spec gives a trial; 0 without one.
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
        return self.trained.cost + self.evaluation

    def with_evaluation(self, cpu_seconds: float) -> "SweepCost":
        """The same after an evaluation that took so many seconds of a core."""
        return replace(self, evaluation=self.evaluation + cpu_seconds / 3600 * self.prices.cpu_hour.price)

    def as_dict(self) -> dict[str, Any]:
        """As plain data, with whole lines: for a page, a report, and ``--json``."""
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
        """In a line, for people."""
        said = [f"{money(self.cost, self.prices)} ({self.prices.about()})"]
        if self.saved:
            said.append(f"{money(self.saved, self.prices)} saved by early stopping")
        if self.trained.lost:
            said.append(f"at most {money(self.trained.lost, self.prices)} for work that crashed or was preempted")
        return ", ".join(said)


def sweep_cost(catalog: Catalog, sweep: str, prices: Prices) -> SweepCost:
    """What a sweep cost until now.

    Raises:
        NotFound: no such sweep.
    """
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        state, best = state_of(session, row), None
        if (leading := next(iter(ranking(state)), None)) is not None:
            best = leading[0].number
        results = session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep))
        at = {(result.trial, result.rung): result for result in results}
        held = held_of(session, catalog.now(), SweepRow.id == sweep, winners={} if best is None else {sweep: best})
        evaluation = _evaluation(session, [sweep], prices)
    saved = [(trial_key(sweep, one.trial), one.attempt, one.seconds) for one in saved_by_early_stopping(state, at)]
    purposes = lines_by("purpose", held, prices)
    return SweepCost(sweep, row.project, row.name, total(held, prices), purposes, evaluation, saved_cost(held, saved, prices), prices)


@dataclass(frozen=True)
class Costs:
    """What sweeps of a project, of a model or of everybody cost, and runs of the project or of everybody that are no trials.

    Attributes:
        of: the name; None is everything.
        trained: all trainings in one.
        lines: by what was asked.
        runs: of ``trained``, runs of scripts and reruns.
        estimated: of the cost of ``runs``, what is of attempts that run or were killed, which count until their last sign of life.
        elsewhere: attempts at runs that are not counted: another tool trained them, or their records do not say on what.
        evaluation: of all their reports.
        champion: what the model's champion cost, and its version; None without such a model, or where its champion is of no sweep.
        champion_run: what the one run cost of which a champion is that is of no sweep; None where that is not known.
        hours: the project's GPU-hours this month, of which sweeps alone take some; None where they are not limited.
        stored: of the projects, what they have in the store.
    """

    of: str | None
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
        return {
            "of": self.of,
            "by": self.by,
            "cost": self.trained.cost + self.evaluation,
            "currency": self.prices.currency,
            "prices_of": self.prices.date.isoformat(),
            **{name: value for name, value in self.trained.as_dict().items() if name not in ("name", "cost")},
            "evaluation": self.evaluation,
            "lines": [line.as_dict() for line in self.lines],
            "runs": {**self.runs.as_dict(), "estimated": self.estimated, "elsewhere": self.elsewhere},
            "champion": {"version": self.champion_version, **self.champion.as_dict()} if self.champion else None,
            "champion_run": {"version": self.champion_version, **self.champion_run.as_dict()} if self.champion_run else None,
            "gpu_hours_this_month": {**asdict(self.hours), "left": self.hours.left} if self.hours else None,
            "storage": [one.as_dict() for one in self.stored],
        }


def costs(store: Store, catalog: Catalog, of: str | None, by: By, prices: Prices) -> Costs:
    """What the sweeps of a project, those of a model, or all sweeps cost until now, with the project's other runs, told apart by ``by``.

    Raises:
        NotFound: nothing of this name.
        StoreError: the store cannot be read.
    """
    with catalog.read() as session:
        names = names_of(session, of) if of else []
        known = _sweeps(session, of, names)
        on_store = set(_projects(store))
        hours = gpu_hours_of(session, of, catalog.now()) if of else None
        champion = champion_of(session, of) if of else None
        if of is not None and not known and champion is None and hours is None and not on_store & {*names}:
            raise NotFound(f"no sweep, model or project {of!r}; {there_are(_ASKED, of, _names(session, on_store))}")
        held = held_of(session, catalog.now(), *_which(of, names), winners=_winners(session, *_which(of, names)))
        runs = held_by_runs(session, names if of else None, each=by == "trial")
        champion_run = _cost_of_run(session, champion, prices) if champion and not champion.sweep else None
        evaluation = _evaluation(session, [sweep for sweep, _ in known], prices)
    everything = [*held, *runs.held]
    shown = on_store & {*names, *(project for _, project in known)} if of else on_store
    return Costs(
        of=of,
        by=by,
        trained=total(everything, prices),
        lines=lines_by(by, everything, prices),
        runs=replace(total(runs.held, prices), name=f"{SCRIPTS} and {RERUNS}"),
        estimated=sum((one.cost(prices) for one in runs.held if one.estimated), 0.0),
        elsewhere=runs.elsewhere,
        evaluation=evaluation,
        champion=sweep_cost(catalog, champion.sweep, prices) if champion and champion.sweep else None,
        champion_version=champion.version if champion else None,
        champion_run=champion_run,
        hours=hours,
        stored=[stored_of(store, project, prices) for project in sorted(shown)],
        prices=prices,
    )


def _cost_of_run(session: Session, version: ModelVersionRow, prices: Prices) -> Line | None:
    """What the run cost that a version is of; None where there is none, or nobody knows what it held."""
    if version.run is None or version.project is None:
        return None
    held = held_by_runs(session, [version.project], version.run).held
    return replace(total(held, prices), name=f"{version.project}/{version.run}") if held else None


def sweep_lines(catalog: Catalog, sweep: str, by: By, prices: Prices) -> list[Line]:
    """A sweep's costs told apart by something else than what they were for."""
    with catalog.read() as session:
        held = held_of(session, catalog.now(), SweepRow.id == sweep, winners=_winners(session, SweepRow.id == sweep))
    return lines_by(by, held, prices)


def _which(of: str | None, names: list[str]) -> tuple[ColumnElement[bool], ...]:
    """Sweeps of a project, by all of its names, and those of a model."""
    return () if of is None else (SweepRow.project.in_(names) | (SweepRow.name == of),)


def _sweeps(session: Session, of: str | None, names: list[str]) -> list[tuple[str, str]]:
    """Ids of sweeps with their projects."""
    return [(sweep, project) for sweep, project in session.execute(select(SweepRow.id, SweepRow.project).where(*_which(of, names)))]


def _names(session: Session, on_store: set[str]) -> list[str]:
    """Whatever a cost can be asked of."""
    sweeps = session.execute(select(SweepRow.id, SweepRow.name, SweepRow.project)).all()
    return sorted({name for row in sweeps for name in row} | on_store | {model.name for model in models_of(session)})


def _winners(session: Session, *which: ColumnElement[bool]) -> dict[str, int]:
    """Of sweeps whose winner became a version, its trial; the leading trials of others are not worked out for a sum."""
    query = select(ModelVersionRow.sweep, ModelVersionRow.trial).join(SweepRow, SweepRow.id == ModelVersionRow.sweep).where(*which)
    return {won: trial for won, trial in session.execute(query) if won is not None and trial is not None}


def _evaluation(session: Session, sweeps: list[str], prices: Prices) -> float:
    wanted = set(sweeps)
    query = select(ReportRow.sweep, ReportRow.cpu_seconds)
    query = query.where(ReportRow.sweep == sweeps[0]) if len(sweeps) == 1 else query
    return sum(seconds for sweep, seconds in session.execute(query) if sweep in wanted) / 3600 * prices.cpu_hour.price


def _projects(store: Store) -> list[str]:
    return [name.removeprefix("project=") for name in store.names("runs") if name.startswith("project=")]
