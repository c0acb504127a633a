"""Shared by the integrations: a run that is opened once the framework knows its hyperparameters."""

import inspect
from collections.abc import Mapping
from typing import Any

from halving import Run, init
from halving.errors import InvalidInput
from halving.identifiers import new_id
from halving.records.config_params import recorded_params


class DeferredRun:
    """The run that an integration logs to: the caller's, or its own, which is opened when it is first needed.

    Args:
        project: where the integration's own run is opened; None with ``run``.
        run: the caller's run; the integration then neither adds params to it nor finishes it.
        arguments: the other arguments of :func:`halving.init`.

    Attributes:
        project: the project's name.
        id: the run's id, known before the run is opened.

    Raises:
        InvalidInput: neither or both of ``run`` and ``project`` are given, or ``config`` has no names.
        TypeError: an argument that ``halving.init`` does not take.
    """

    def __init__(self, project: str | None, run: Run | None, arguments: Mapping[str, Any]) -> None:
        if (project is None) == (run is None) or (run is not None and arguments):
            raise InvalidInput(
                f"project {project!r}, run {run!r} and {sorted(arguments)} are not accepted together: "
                "give run=… alone, or project=… and the other arguments of halving.init"
            )
        self._callers_run = run
        self._arguments = dict(arguments)
        self._opened: Run | None = None
        self._config = recorded_params(self._arguments.get("config"))
        self._params: dict[str, Any] | None = None  # the params that its own run was opened with
        if run is None:
            inspect.signature(init).bind(project=project, **arguments)
            self.project = str(project)
            self.id = self._arguments.get("id") or new_id()
        else:
            self.project = run.project
            self.id = run.id

    @property
    def opened(self) -> Run | None:
        """The run, while it is open."""
        if self._callers_run is not None:
            return self._callers_run
        return self._opened

    def open(self, params: Mapping[str, Any] | None = None) -> Run:
        """Open the run if it is not open, and return it.

        What is logged after its end (a test after the fit) goes to its next attempt.

        Args:
            params: those that the framework knows; ``config`` overrides them. Later calls have no effect,
                because params never change.
        """
        opened = self.opened
        if opened is None:
            if self._params is None:
                self._params = {**(params or {}), **self._config}
            # None where no params are known: a run that is continued then keeps its own.
            # Frameworks call their loggers on rank zero only, so the run is that process's alone.
            own = {"config": self._params or None, "id": self.id, "distributed": False}
            opened = self._opened = init(self.project, **{**self._arguments, **own})
        return opened

    def renew(self) -> None:
        """Begin another training: a new run, or the next attempt of the run whose ``id`` was given."""
        if self._params is not None and self._opened is None:
            self._params = None
            self.id = self._arguments.get("id") or new_id()

    def changed_names(self, params: Mapping[str, Any]) -> list[str]:
        """The names in ``params`` whose values differ from those that the integration's own run has.

        Names that ``config`` decides are left out.
        """
        if self._params is None:
            return []
        recorded = self._params
        return sorted(
            name
            for name in params
            if name not in self._config and (name not in recorded or recorded[name] != params[name])
        )

    def finish(self, status: str) -> None:
        """Finish the integration's own run; the caller's is only flushed."""
        if self._callers_run is not None:
            self._callers_run.flush()
        elif self._opened is not None:
            self._opened.finish(status)
            self._opened = None
