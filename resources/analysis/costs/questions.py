"""What people ask of the ledger: what a sweep, a model and a project cost, and what that was for."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from halving import Store
from halving.errors import InvalidInput, NotFound
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

Kind = Literal["project", "model"]
"""What has a name that is asked for."""
_ASKED = "sweeps, models and projects"


@dataclass(frozen=True)
class SweepCost:
    """What one sweep cost, as far as it has come.

    Attributes:
        purposes: what that was for: the winner, pruned trials, the final training…; they add up to
            ``trained``, with the evaluation to all.
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
            said.append(
                f"at most {money(self.trained.lost, self.prices)} for work that crashed or was preempted"
            )
        return ", ".join(said)


def sweep_cost(catalog: Catalog, sweep: str, prices: Prices) -> SweepCost:
    """What a sweep cost until now.

    Raises:
        NotFound: no such sweep.
    """
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        state = state_of(session, row)
        best = None
        if (leading := next(iter(ranking(state)), None)) is not None:
            best = leading[0].number
        results = session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep))
        at = {(result.trial, result.rung): result for result in results}
        held = held_of(
            session, catalog.now(), SweepRow.id == sweep, winners={} if best is None else {sweep: best}
        )
        evaluation = _evaluation(session, [sweep], prices)
    saved = [
        (trial_key(sweep, one.trial), one.attempt, one.seconds) for one in saved_by_early_stopping(state, at)
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
    """What sweeps of a project, of a model or of everybody cost, and runs of the project or of everybody that
    are no trials.

    Attributes:
        of: the name; None is everything.
        kind: what has the name; None of everything.
        trained: all trainings in one.
        lines: by what was asked.
        runs: of ``trained``, runs of scripts and reruns.
        estimated: of the cost of ``runs``, what is of attempts that run or were killed, which count until
            their last sign of life.
        elsewhere: attempts at runs that are not counted: another tool trained them, or their records do not
            say on what.
        evaluation: of all their reports.
        champion: what the model's champion cost, and its version; None without such a model, or where its
            champion is of no sweep.
        champion_run: what the one run cost of which a champion is that is of no sweep; None where that is not
            known.
        hours: the project's GPU-hours this month, of which sweeps alone take some; None where they are not
            limited.
        stored: of the projects, what they have in the store.
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
        return {
            "of": self.of,
            "kind": self.kind,
            "by": self.by,
            "cost": self.trained.cost + self.evaluation,
            "currency": self.prices.currency,
            "prices_of": self.prices.date.isoformat(),
            **{name: value for name, value in self.trained.as_dict().items() if name not in ("name", "cost")},
            "evaluation": self.evaluation,
            "lines": [line.as_dict() for line in self.lines],
            "runs": {**self.runs.as_dict(), "estimated": self.estimated, "elsewhere": self.elsewhere},
            "champion": {"version": self.champion_version, **self.champion.as_dict()}
            if self.champion
            else None,
            "champion_run": {"version": self.champion_version, **self.champion_run.as_dict()}
            if self.champion_run
            else None,
            "gpu_hours_this_month": {**asdict(self.hours), "left": self.hours.left} if self.hours else None,
            "storage": [one.as_dict() for one in self.stored],
        }


def costs(
    store: Store, catalog: Catalog, of: str | None, by: By, prices: Prices, kind: Kind | None = None
) -> Costs:
    """What the sweeps of a project, those of a model, or all sweeps cost until now, with the project's other
    runs, told apart by ``by``.

    Args:
        of: a name; None is everything.
        kind: what has the name. By default the project, if there is one; a model all of whose sweeps are the
            project's is a part of it.

    Raises:
        NotFound: nothing of this name.
        InvalidInput: it is the name of a project and also of another project's model, and ``kind`` does not
            say which is meant.
        StoreError: the store cannot be read.
    """
    on_store = set(_projects(store))
    with catalog.read() as session:
        chosen = _chosen(session, of, kind, on_store, catalog.now())
        sweeps = session.execute(select(SweepRow.id, SweepRow.project).where(*chosen.sweeps)).all()
        held = held_of(session, catalog.now(), *chosen.sweeps, winners=_winners(session, *chosen.sweeps))
        runs = held_by_runs(session, chosen.projects, each=by == "trial")
        champion = chosen.champion
        champion_run = _cost_of_run(session, champion, prices) if champion and not champion.sweep else None
        evaluation = _evaluation(session, [row.id for row in sweeps], prices)
    everything = [*held, *runs.held]
    shown = (
        on_store
        if chosen.projects is None
        else on_store & {*chosen.projects, *(row.project for row in sweeps)}
    )
    return Costs(
        of=of,
        kind=chosen.kind,
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
        hours=chosen.hours,
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
        held = held_of(
            session, catalog.now(), SweepRow.id == sweep, winners=_winners(session, SweepRow.id == sweep)
        )
    return lines_by(by, held, prices)


@dataclass(frozen=True)
class _Chosen:
    """What is asked about.

    Attributes:
        sweeps: conditions that they meet.
        projects: of whose runs that are no trials; None is all.
    """

    kind: Kind | None
    sweeps: tuple[ColumnElement[bool], ...]
    projects: tuple[str, ...] | None
    champion: ModelVersionRow | None
    hours: GpuHours | None


def _chosen(session: Session, of: str | None, kind: Kind | None, on_store: set[str], now: float) -> _Chosen:
    """What a name means."""
    if of is None:
        return _Chosen(None, (), None, None, None)
    names = tuple(names_of(session, of))
    hours = gpu_hours_of(session, of, now)
    champion = champion_of(session, of)
    homes = set(session.scalars(select(SweepRow.project).where(SweepRow.name == of).distinct()))
    if champion and champion.project:
        homes.add(champion.project)
    of_project = session.scalar(select(SweepRow.id).where(SweepRow.project.in_(names)).limit(1))
    there = {"project": bool(of_project or hours or on_store & {*names}), "model": bool(homes or champion)}
    if not any(there[each] for each in ([kind] if kind else there)):
        raise NotFound(
            f"no {kind or 'sweep, model or project'} {of!r}; "
            f"{there_are(_ASKED, of, _names(session, on_store))}"
        )
    others = sorted({names_of(session, home)[0] for home in homes.difference(names)})
    if kind is None and there["project"] and others:
        raise InvalidInput(
            f"{of!r} is not accepted: it is a project, and a model of {', '.join(others)}; say which is "
            "meant: "
            f"--project {of} or --model {of}"
        )
    if (kind or ("project" if there["project"] else "model")) == "project":
        return _Chosen("project", (SweepRow.project.in_(names),), names, None if others else champion, hours)
    return _Chosen("model", (SweepRow.name == of,), (), champion, None)


def _names(session: Session, on_store: set[str]) -> list[str]:
    """Whatever a cost can be asked of."""
    sweeps = session.execute(select(SweepRow.id, SweepRow.name, SweepRow.project)).all()
    return sorted(
        {name for row in sweeps for name in row} | on_store | {model.name for model in models_of(session)}
    )


def _winners(session: Session, *which: ColumnElement[bool]) -> dict[str, int]:
    """Of sweeps whose winner became a version, its trial; the leading trials of others are not worked out for
    a sum.
    """
    query = (
        select(ModelVersionRow.sweep, ModelVersionRow.trial)
        .join(SweepRow, SweepRow.id == ModelVersionRow.sweep)
        .where(*which)
    )
    return {won: trial for won, trial in session.execute(query) if won is not None and trial is not None}


def _evaluation(session: Session, sweeps: list[str], prices: Prices) -> float:
    wanted = set(sweeps)
    query = select(ReportRow.sweep, ReportRow.cpu_seconds)
    query = query.where(ReportRow.sweep == sweeps[0]) if len(sweeps) == 1 else query
    return (
        sum(seconds for sweep, seconds in session.execute(query) if sweep in wanted)
        / 3600
        * prices.cpu_hour.price
    )


def _projects(store: Store) -> list[str]:
    return [name.removeprefix("project=") for name in store.names("runs") if name.startswith("project=")]
