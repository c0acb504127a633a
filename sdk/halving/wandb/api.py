"""``wandb.Api``: runs that were recorded, read from the store or the server that new runs go to."""

import os
from collections.abc import Mapping
from typing import Any

from halving.errors import NotFound
from halving.identifiers import sanitize_name
from halving.store.opening import open_store
from halving.wandb.api_files import File
from halving.wandb.api_run import Run
from halving.wandb.api_runs import Runs
from halving.wandb.errors import CommError, NameMissing, UsageError
from halving.wandb.recorded_runs import recorded_runs
from halving.wandb.sweep_studies import open_studies

__all__ = ["Api", "File", "Project", "Run", "Runs", "Sweep"]


class Project:
    """A project that has runs."""

    def __init__(self, entity: str, name: str) -> None:
        self.entity = entity
        self.name = name
        self.id = name

    def __repr__(self) -> str:
        return f"<Project {self.entity}/{self.name}>"

    @property
    def path(self) -> list[str]:
        return [self.entity, self.name]


class Sweep:
    """A sweep, by the runs that are its trials."""

    def __init__(self, sweep_id: str, runs: Runs) -> None:
        self.id = self.name = sweep_id
        self.runs = runs
        self.entity = runs.entity
        self.project = runs.project

    def __repr__(self) -> str:
        return f"<Sweep {self.entity}/{self.project}/{self.id}>"

    def best_run(self, order: str | None = None) -> Run | None:
        """The first run in an order such as ``+summary_metrics.loss``; None without runs.

        Raises:
            UsageError: there is no order.
        """
        if not order:
            raise UsageError(
                "order is missing: give best_run('+summary_metrics.loss'), or run `halving leaderboard "
                f"{self.id}`"
            )
        ordered = Runs(
            self.runs._runs, self.entity, self.project, self.runs.filters, order, self.runs.per_page
        )
        if not len(ordered):
            return None
        return ordered[0]


class Api:
    """Reads runs; paths are W&B's: ``entity/project/run``, ``project/run`` or ``run``.

    Args:
        overrides: ``project`` and ``entity`` for paths that name none.
        timeout, api_key: have no meaning here.
    """

    def __init__(
        self,
        overrides: Mapping[str, Any] | None = None,
        timeout: int | None = None,
        api_key: str | None = None,
    ) -> None:
        self.settings = {"entity": None, "project": None, **(overrides or {})}
        self._runs = recorded_runs(open_store())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NameMissing(f"wandb.Api().{name} is not there in Halving; docs/wandb.md has the table of names")

    @property
    def default_entity(self) -> str | None:
        """The entity of paths that name none."""
        entity = self.settings["entity"] or os.environ.get("WANDB_ENTITY")
        return str(entity) if entity else None

    def runs(
        self,
        path: str | None = None,
        filters: Mapping[str, Any] | None = None,
        order: str | None = "+created_at",
        per_page: int = 50,
        include_sweeps: bool = False,
        lazy: bool = True,
    ) -> Runs:
        """The active runs of a project, the oldest first.

        Args:
            path: ``entity/project``, or ``project``.
            filters: in MongoDB's language, on ``config.NAME``, ``summary_metrics.NAME``, ``state``, ``tags``,
                ``display_name``, ``name`` (the id), ``group``, ``created_at`` and others.
            order: a field of a filter after ``+`` or ``-``.

        Raises:
            UsageError: a field or an operator has no equal here.
        """
        entity, project = self._project(path)
        return Runs(self._runs, entity, project, filters, order, per_page)

    def run(self, path: str = "") -> Run:
        """One run.

        Raises:
            ValueError: the path names no run.
            CommError: there is no such run.
        """
        *above, run_id = _parts(path)
        entity, project = self._project("/".join(above) or None)
        try:
            return Run(self._runs, self._runs.run(project, sanitize_name(run_id, otherwise="run")), entity)
        except NotFound as error:
            raise CommError(f"Could not find run <Run {path} (not found)>: {error}", error) from None

    def projects(self, entity: str | None = None, per_page: int = 200) -> list[Project]:
        """All projects that have runs."""
        name = entity or self.default_entity or ""
        return [Project(name, project) for project in self._runs.projects()]

    def project(self, name: str, entity: str | None = None) -> Project:
        """A project by its name."""
        return Project(entity or self.default_entity or "", name)

    def sweep(self, path: str = "") -> Sweep:
        """A sweep, by ``entity/project/sweep`` or its id, with its runs.

        Raises:
            ValueError: the path names no sweep, or there is none of its id.
        """
        *above, sweep_id = _parts(path)
        if above:
            entity, project = self._project("/".join(above))
        else:
            entity = self.default_entity or ""
            project = _project_of_study(sweep_id)
        return Sweep(sweep_id, Runs(self._runs, entity, project, {"sweep": sweep_id}, "+created_at", 50))

    def artifact(self, name: str, type: str | None = None) -> Any:
        """A version of an artifact: ``entity/project/NAME:v3``, ``NAME:ALIAS`` or ``NAME``.

        Raises:
            CommError: there is no such artifact.
            ValueError: it is of another type.
        """
        from halving.wandb.artifacts import find_artifact

        project = self._default_project()
        if project is None and "/" not in name:
            raise ValueError(f"artifact {name!r} is not accepted: give PROJECT/{name}")
        return find_artifact(self._runs.store, project or "", name, type)

    def artifact_exists(self, name: str, type: str | None = None) -> bool:
        """Whether there is such a version of an artifact."""
        try:
            self.artifact(name, type)
        except (CommError, ValueError):
            return False
        return True

    def flush(self) -> None:
        """Do nothing: what is read is not kept."""

    def _project(self, path: str | None) -> tuple[str, str]:
        """The entity and the project, as the store names it, of a path.

        Raises:
            ValueError: there is none.
        """
        parts = [part for part in (path or "").strip("/").split("/") if part]
        if len(parts) > 2:
            raise ValueError(f"path = {path!r} is not accepted: give entity/project")
        name = self._default_project()
        if parts:
            name = sanitize_name(parts[-1], otherwise="uncategorized")
        if name is None:
            raise ValueError(f"path = {path!r} is not accepted: give project, or set WANDB_PROJECT")
        entity = self.default_entity or ""
        if len(parts) == 2:
            entity = parts[0]
        return entity, name

    def _default_project(self) -> str | None:
        name = self.settings["project"] or os.environ.get("WANDB_PROJECT")
        if not name:
            return None
        return sanitize_name(str(name), otherwise="uncategorized")


def _parts(path: str) -> list[str]:
    """The parts of a run's or a sweep's path, without the words that W&B's pages have between them.

    Raises:
        ValueError: there are none, or too many.
    """
    _, _, behind = path.rpartition("://")
    parts = [part for part in behind.strip("/").split("/") if part]
    if behind != path:
        parts = parts[1:]  # without the host
    if len(parts) > 2 and parts[-2] in ("runs", "sweeps"):
        del parts[-2]
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"path = {path!r} is not accepted: give entity/project/id")
    return parts


def _project_of_study(study: str) -> str:
    studies = open_studies()
    try:
        return studies.project(study)
    except (NotFound, UsageError) as error:
        raise ValueError(f"Could not find sweep {study}: {error}") from None
    finally:
        studies.close()
