"""What the integrations share: a run that is opened once the framework knows its params, and params as plain data."""

import enum
import inspect
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halving import Run, init
from halving.errors import InvalidInput


class DeferredRun:
    """The run that an integration logs to: the caller's, or its own, opened at the first need.

    Args:
        project: of a run of one's own; None with ``run``.
        run: the caller's run; the integration then neither adds params to it nor finishes it.
        arguments: the other arguments of :func:`halving.init`.

    Attributes:
        project: its name.
        id: the run's, known before the run is opened.

    Raises:
        InvalidInput: neither or both of ``run`` and ``project`` are given.
        TypeError: an argument that ``halving.init`` does not take.
    """

    def __init__(self, project: str | None, run: Run | None, arguments: Mapping[str, Any]) -> None:
        if (project is None) == (run is None) or (run is not None and arguments):
            raise InvalidInput(
                f"project {project!r}, run {run!r} and {sorted(arguments)} are not accepted together: "
                "give run=… alone, or project=… and the other arguments of halving.init"
            )
        self._given, self._arguments = run, dict(arguments)
        self._opened: Run | None = None
        self._config: Mapping[str, Any] = self._arguments.get("config") or {}
        self._params: dict[str, Any] | None = None  # with which the own run was opened
        if run is None:
            inspect.signature(init).bind(project=project, **arguments)
        self.project = run.project if run is not None else str(project)
        self.id = run.id if run is not None else self._arguments.get("id") or _new_id()

    @property
    def opened(self) -> Run | None:
        """The run, while it is open."""
        return self._given if self._given is not None else self._opened

    def open(self, params: Mapping[str, Any] | None = None) -> Run:
        """The run; opened if it is not. What comes after its end (a test after the fit) goes to its next attempt.

        Args:
            params: what the framework knows; ``config`` comes before it. Later calls change nothing: params never change.
        """
        opened = self.opened
        if opened is None:
            if self._params is None:
                self._params = {**(params or {}), **self._config}
            # None, when nobody knows any: a run that is continued then keeps its own.
            opened = self._opened = init(self.project, **{**self._arguments, "config": self._params or None, "id": self.id})
        return opened

    def renew(self) -> None:
        """Let another training begin: a new run, or the next attempt of the run whose ``id`` was given."""
        if self._params is not None and self._opened is None:
            self._params = None
            self.id = self._arguments.get("id") or _new_id()

    def changed(self, params: Mapping[str, Any]) -> list[str]:
        """The names in ``params`` that an own run was not opened with, but for those that ``config`` decides."""
        recorded = self._params if self._params is not None else params
        return sorted(name for name in params if name not in self._config and (name not in recorded or recorded[name] != params[name]))

    def finish(self, status: str) -> None:
        """Finish a run of one's own; write out what the caller's has pending."""
        if self._given is not None:
            self._given.flush()
        elif self._opened is not None:
            self._opened.finish(status)
            self._opened = None


def plain(value: Any) -> Any:
    """``value`` as numbers, strings, lists and dicts, equal in every process.

    What has no such form is named: functions and classes by where they are defined, other things as they print, without addresses.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(inner) for inner in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return plain(value.item())
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(value))


def _new_id() -> str:
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
