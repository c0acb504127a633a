"""What a run of W&B's names says of itself: its name, path, address, folder and so on."""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from halving.wandb.config import Config
from halving.wandb.errors.term import termwarn
from halving.wandb.run_labels import Labels, project_url, run_url, tag_problem

if TYPE_CHECKING:
    from halving.run.run import Run as HalvingRun
    from halving.wandb.settings import Settings


class RunFacts:
    """The properties of a run; some can be set, which is recorded."""

    _run: "HalvingRun | None"
    _settings: "Settings"
    _config: Config
    _labels: Labels
    _resumed: bool
    _first_step: int
    _start_time: float

    @property
    def starting_step(self) -> int:
        """The step at which this attempt began."""
        return self._first_step

    @property
    def id(self) -> str:
        return str(self._settings.run_id)

    @property
    def name(self) -> str:
        """The name that ``init`` was given, or the id."""
        return self._labels.name or self.id

    @name.setter
    def name(self, name: str) -> None:
        self._check_open("name")
        self._labels.name = name
        self._note_labels()

    @property
    def notes(self) -> str | None:
        return self._labels.notes

    @notes.setter
    def notes(self, notes: str | None) -> None:
        self._check_open("notes")
        self._labels.notes = notes
        self._note_labels()

    @property
    def tags(self) -> tuple[str, ...]:
        return self._labels.tags

    @tags.setter
    def tags(self, tags: Sequence[str]) -> None:
        self._check_open("tags")
        problem = tag_problem(tags)
        if problem:
            termwarn(f"Invalid tag detected: {problem} Tags not updated.")
            return
        self._labels.tags = tuple(tags)
        self._note_labels()

    @property
    def group(self) -> str:
        return self._labels.group or ""

    @property
    def job_type(self) -> str:
        return self._labels.job_type or ""

    @property
    def entity(self) -> str:
        return self._labels.entity or ""

    @property
    def sweep_id(self) -> str | None:
        return self._labels.sweep

    @property
    def project(self) -> str:
        """The project, by the name that it has in the store."""
        return str(self._settings.project)

    def project_name(self) -> str:
        """The project, as older scripts ask for it."""
        return self.project

    @property
    def path(self) -> str:
        """``entity/project/id``."""
        return "/".join(part for part in (self.entity, self.project, self.id) if part)

    @property
    def url(self) -> str | None:
        """The address of the run's page; None where it is in a store, which does not know who shows it."""
        return run_url(self._run)

    def get_url(self) -> str | None:
        """The address, as older scripts ask for it."""
        return self.url

    @property
    def project_url(self) -> str | None:
        """The address of the project's runs; None where runs go to a store."""
        return project_url(self._run)

    def get_project_url(self) -> str | None:
        """The address, as older scripts ask for it."""
        return self.project_url

    @property
    def sweep_url(self) -> str | None:
        return None

    @property
    def dir(self) -> str:
        """A folder on this machine for the script's own files; :meth:`save` keeps files of it."""
        return self._settings.files_dir

    @property
    def sync_dir(self) -> str:
        return str(Path(self.dir).parent)

    @property
    def settings(self) -> "Settings":
        return self._settings.copy()

    @property
    def start_time(self) -> float:
        """Seconds since 1970."""
        return self._start_time

    @property
    def resumed(self) -> bool:
        """Whether an earlier attempt of the run was continued."""
        return self._resumed

    @property
    def offline(self) -> bool:
        """Whether ``mode`` is ``offline``; it is recorded all the same."""
        return self._settings.mode in ("offline", "dryrun")

    @property
    def disabled(self) -> bool:
        """Whether nothing is recorded."""
        return self._run is None

    @property
    def config_static(self) -> Any:
        """The config as it is now, which can not be changed."""
        return MappingProxyType(self._config.as_dict())

    def _check_open(self, call: str) -> None:
        raise NotImplementedError

    def _note_labels(self) -> None:
        raise NotImplementedError
