"""``wandb.summary``: the values of the whole run, which tables and filters show."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class SummaryDict:
    """Values by item and by attribute; a nested dict is one of these again, whose changes are recorded."""

    _read: Callable[[], Mapping[str, Any]]
    _write: Callable[[tuple[str, ...], Any], None]

    def __init__(
        self, read: Callable[[], Mapping[str, Any]], write: Callable[[tuple[str, ...], Any], None]
    ) -> None:
        # Attributes of one's own are names of values, so these are set past __setattr__.
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_write", write)

    def __repr__(self) -> str:
        return str(self._as_dict())

    def __getitem__(self, key: str) -> Any:
        value = self._read()[key]
        if isinstance(value, dict) and "_type" not in value:
            return SummaryDict(
                lambda: self._read().get(key, {}), lambda names, new: self._write((key, *names), new)
            )
        return value

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return self[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._write((key,), value)

    __setattr__ = __setitem__

    def __delitem__(self, key: str) -> None:
        self._write((key,), DELETED)

    __delattr__ = __delitem__

    def __contains__(self, key: object) -> bool:
        return key in self._read()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def keys(self) -> list[str]:
        """The names."""
        return [key for key in self._read() if key != "_wandb"]

    def items(self) -> list[tuple[str, Any]]:
        """The names and values."""
        return [(key, self._read()[key]) for key in self.keys()]

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or ``default``."""
        if key in self._read():
            return self[key]
        return default

    def update(self, d: Mapping[str, Any]) -> None:
        """Set several values."""
        for key, value in d.items():
            self._write((key,), value)

    def _as_dict(self) -> dict[str, Any]:
        return dict(self._read())


class Summary(SummaryDict):
    """The summary of a run: last values of what was logged, aggregates of ``define_metric``, and your own."""


DELETED = object()
"""Written in place of a value that is deleted."""
