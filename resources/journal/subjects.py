"""What a note or a page of the journal is about: a run, a sweep, a model or a version, a project."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.identifiers import check_name
from halving.store.store import Store
from resources.catalog import (
    ExperimentRow,
    IntentRow,
    ModelVersionRow,
    RegisteredModelRow,
    RegistryEventRow,
    RunRow,
    SweepRow,
    TrialRow,
)
from resources.catalog.trial_key import parse_trial_key, trial_key
from resources.registry.events import RENAMED
from resources.scheduling.intents import project_of
from resources.tenancy.projects import names_of, row_of

KINDS = ("run", "sweep", "model", "project")
"""What notes can be about."""
_MAX_LISTED = 5
_MAX_TRIAL = 2**31


@dataclass(frozen=True)
class Subject:
    """A subject that exists.

    Attributes:
        kind: run, sweep, model or project.
        name: as notes name it: ``project/run``, a sweep's id, ``model`` or ``model@version``, a project's
            present name.
        project: its project; of a model the model's name.
        names: for a model and a project, all names that it has or had; else the name alone.
        sweep: for a run that is a sweep's trial, the sweep and the trial's number.
    """

    kind: str
    name: str
    project: str
    names: Sequence[str] = ()
    sweep: tuple[str, int] | None = None

    @property
    def version(self) -> str | None:
        """The version that a model's subject names; None for the whole model."""
        if self.kind != "model" or self.name == self.project:
            return None
        return self.name.removeprefix(f"{self.project}@")

    @property
    def run(self) -> str:
        """The run's id, for a run."""
        return self.name.partition("/")[2]


def subject_of(session: Session, kind: str, name: str) -> Subject:
    """The subject of a kind with exactly this name.

    Args:
        name: ``project/run``, a sweep's id, ``model`` or ``model@version``, a project by any name that it
            has or had.

    Raises:
        NotFound: there is none.
        InvalidInput: there is no such kind.
    """
    look = {"run": _run, "sweep": _sweep, "model": _model, "project": _project}.get(kind)
    if look is None:
        raise InvalidInput(f"kind = {kind!r:.80} is not accepted: give one of {', '.join(KINDS)}")
    subject = None
    if _is_text(name):
        subject = look(session, name)
    if subject is None:
        raise NotFound(f"no {kind} {name!r:.200} in the catalog")
    return subject


def run_of_store(session: Session, store: Store, name: str) -> Subject | None:
    """A run that the store has, though the index may not have it yet.

    Args:
        name: ``project/run``.

    Raises:
        StoreError: the store does not answer.
    """
    project, slash, run = name.partition("/")
    if not slash or not _is_name(project) or not _is_name(run):
        return None
    for each in names_of(session, project):
        if store.exists(f"runs/project={each}/{run}/record.json"):
            return Subject("run", f"{each}/{run}", each, (f"{each}/{run}",))
    return None


def resolve_subject(
    session: Session, name: str, kind: str | None = None, projects: Collection[str] | None = None
) -> Subject:
    """The subject that a person means: by its name, a run's id or its beginning, or ``sweep.0007``.

    An exact name comes before the beginning of a run's id.

    Args:
        name: it may begin with its kind and a colon, such as ``model:digits``.
        kind: the only kind that is meant; None for any.
        projects: all names of the only projects whose subjects may be meant; None for all.

    Raises:
        NotFound: there is none.
        InvalidInput: several are meant; the message lists them.
    """
    prefix, colon, rest = name.partition(":")
    if colon and prefix in KINDS:
        if kind not in (None, prefix):
            raise InvalidInput(f"subject {name!r:.200} is not accepted with kind = {kind!r}: give one kind")
        kind = prefix
        name = rest
    if kind is not None and kind not in KINDS:
        raise InvalidInput(f"kind = {kind!r:.80} is not accepted: give one of {', '.join(KINDS)}")
    subjects: list[Subject] = []
    for each in KINDS:
        if kind in (None, each) and _is_text(name):
            subjects += _named(session, each, name)
    if not subjects and kind in (None, "run") and _is_text(name):
        subjects = _runs_that_begin(session, name, projects)
    if projects is not None:
        subjects = [subject for subject in subjects if subject.project in projects]
    if len(subjects) == 1:
        return subjects[0]
    if not subjects:
        kinds = kind or "run, sweep, model or project"
        raise NotFound(
            f"no {kinds} {name!r:.200}: give project/run or a run's id, a sweep's id, MODEL, MODEL@1.0.0, or "
            "a project; a new run is in the index after some seconds (halving index)"
        )
    listed = [f"{subject.kind}:{subject.name}" for subject in subjects]
    more = ""
    if len(listed) > _MAX_LISTED:
        more = f" and {len(listed) - _MAX_LISTED} more"
    raise InvalidInput(
        f"subject {name!r:.200} is ambiguous: it could be {', '.join(listed[:_MAX_LISTED])}{more}; give one "
        "of these, with its kind"
    )


def _named(session: Session, kind: str, name: str) -> list[Subject]:
    if kind == "run" and "/" not in name:
        pairs = session.execute(select(RunRow.project, RunRow.run).where(RunRow.run == name))
        runs = [_run(session, f"{project}/{run}") for project, run in pairs.all()]
        subjects = [run for run in runs if run is not None]
        if subjects or (trial := _trial(session, name)) is None:
            return subjects
        return [trial]
    subject = {"run": _run, "sweep": _sweep, "model": _model, "project": _project}[kind](session, name)
    return [subject] if subject is not None else []


def _runs_that_begin(session: Session, name: str, projects: Collection[str] | None) -> list[Subject]:
    """Runs of these projects whose id begins with a text, within a project if it is named."""
    project, slash, beginning = name.rpartition("/")
    if not beginning:
        return []
    query: Select[str, str] = select(RunRow.project, RunRow.run)
    query = query.where(RunRow.run.startswith(beginning, autoescape=True))
    if slash:
        query = query.where(RunRow.project.in_(names_of(session, project)))
    if projects is not None:
        query = query.where(RunRow.project.in_(projects))
    pairs = session.execute(query.order_by(RunRow.project, RunRow.run).limit(50)).all()
    # SQLite's LIKE takes a letter in either case for the same.
    runs = [_run(session, f"{project}/{run}") for project, run in pairs if run.startswith(beginning)]
    return [run for run in runs if run is not None]


def _run(session: Session, name: str) -> Subject | None:
    project, slash, run = name.partition("/")
    if not slash or not _is_name(project) or not _is_name(run):
        return None
    for each in names_of(session, project):
        query = select(RunRow.sweep, RunRow.trial).where(RunRow.project == each, RunRow.run == run)
        row = session.execute(query).first()
        if row is not None:
            trial = None
            if row.sweep is not None and row.trial is not None and 0 <= row.trial < _MAX_TRIAL:
                trial = (row.sweep, row.trial)
            if trial is not None and session.get(TrialRow, trial) is None:
                trial = None  # Another catalog has its sweep.
            return Subject("run", f"{each}/{run}", each, (f"{each}/{run}",), trial)
    trial_subject = _trial(session, run)
    if trial_subject is not None and trial_subject.project in names_of(session, project):
        return trial_subject
    return None


def _trial(session: Session, run: str) -> Subject | None:
    """The run of a trial that the catalog has, though the index may not have it yet."""
    try:
        sweep, number = parse_trial_key(run)
    except ValueError:
        return None
    if trial_key(sweep, number) != run or not 0 <= number < _MAX_TRIAL:
        return None
    if session.get(TrialRow, (sweep, number)) is None:
        return None
    project = session.get_one(SweepRow, sweep).project
    return Subject("run", f"{project}/{run}", project, (f"{project}/{run}",), (sweep, number))


def _sweep(session: Session, name: str) -> Subject | None:
    project = session.scalar(select(SweepRow.project).where(SweepRow.id == name))
    if project is None:
        intent = session.scalar(select(IntentRow).where(IntentRow.sweep == name))
        if intent is None:
            return None
        project = project_of(intent)
    return Subject("sweep", name, project, (name,))


def _model(session: Session, name: str) -> Subject | None:
    if session.get(RegisteredModelRow, name) is not None:
        return Subject("model", name, name, _names_of_model(session, name))
    model, at, version = name.rpartition("@")
    if not at or session.get(ModelVersionRow, (model, version)) is None:
        return None
    return Subject("model", name, model, _names_of_model(session, model))


def _names_of_model(session: Session, model: str) -> list[str]:
    """The names that a model has and had, by the events of its renaming."""
    names = [model]
    while True:
        renamed = (RegistryEventRow.kind == RENAMED, RegistryEventRow.after == names[-1])
        query = select(RegistryEventRow.before).where(RegistryEventRow.model == names[-1], *renamed)
        before = session.scalar(query.order_by(RegistryEventRow.id.desc()).limit(1))
        if before is None or before in names:
            return names
        names.append(before)


def _project(session: Session, name: str) -> Subject | None:
    if not _is_name(name):
        return None
    row = row_of(session, name)
    names = names_of(session, name)
    if row is None and not _has_anything(session, name):
        return None
    return Subject("project", names[0], names[0], names)


def _has_anything(session: Session, project: str) -> bool:
    queries = (
        select(SweepRow.id).where(SweepRow.project == project),
        select(RunRow.id).where(RunRow.project == project),
        select(ExperimentRow.id).where(ExperimentRow.project == project),
    )
    return any(session.execute(query.limit(1)).first() is not None for query in queries)


def _is_text(name: str) -> bool:
    """Whether a database accepts a name; none has a NUL or half a character."""
    return "\0" not in name and not any("\ud800" <= letter <= "\udfff" for letter in name)


def _is_name(text: str) -> bool:
    try:
        check_name("name", text)
    except InvalidInput:
        return False
    return True
