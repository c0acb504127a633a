"""The slow path of ``log()``: new names, other types than plain numbers, and wrong steps or values."""

import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput
from halving.ingest.metric_writer import MetricWriter
from halving.ingest.values import NUMBER_TYPES, Sorted, sort_values
from halving.store.retry import warn

MAX_KEYS = 10_000  # different names in a run
_MAX_WARNINGS = 100  # names that a run warns about
_PACKAGE = str(Path(__file__).parent.parent)


class Validator:
    """Checks, flattens and counts what is logged.

    Args:
        writer: takes the accepted values.
        run: the run's id, for messages.
        strict: raise an error for what is wrong; otherwise it is left out, counted, and warned about once for
            each name.

    Attributes:
        rejected: how many values were left out.
        closed: the run is finished.
    """

    def __init__(self, writer: MetricWriter, run: str, *, strict: bool) -> None:
        self._writer = writer
        self._run = run
        self._strict = strict
        self.rejected = 0
        self.closed = False
        self._keys: set[str] = set()
        self._warned: set[str] = set()

    def take(self, values: Mapping[str, Any], step: Any) -> None:
        """Log those of ``values`` that are accepted.

        Raises:
            InvalidInput: something is wrong and the run is strict; then nothing of ``values`` is logged.
        """
        try:
            self._take(values, step)
        except Exception as error:
            if self._strict:
                raise
            self.reject({"log()": f"log() failed with {type(error).__name__}: {error}"})

    def _take(self, values: Mapping[str, Any], step: Any) -> None:
        at = self._writer.appender.now()
        if self.closed:
            self._strict = False  # too late to raise: the training is over
            self.reject(
                {"log() after finish()": f"log() of run {self._run} is not accepted: the run is finished"}
            )
            return
        if (number := _int64(step)) is None:
            self.reject(
                {"step": f"step {_describe_step(step)} is not accepted: give an integer of at most 63 bits"},
                len(values),
            )
            return
        if values == {}:
            return
        if (
            type(values) is dict
            and NUMBER_TYPES.issuperset(map(type, values.values()))
            and self._keys.issuperset(values)
        ):
            try:
                self._writer.append(values, number, at)
                return
            except (OverflowError, struct.error):  # an integer that no float64 holds
                pass
        accepted = sort_values(values)
        self._admit(accepted)
        if accepted.numbers:
            self._writer.append(accepted.numbers, number, at)
        if accepted.device:
            self._writer.append_device(accepted.device, number, at)
        for key, media in accepted.media.items():
            described = {
                **media.describe(),
                "kind": media.kind,
                "media_type": media.media_type,
                "caption": media.caption,
            }
            self._writer.append_artifact(key, media.encode(), media.suffix, described, number, at)

    def reject(self, wrong: Mapping[str, str], count: int | None = None) -> None:
        """Raise the first message in a strict run; otherwise count and warn."""
        if self._strict:
            raise InvalidInput(next(iter(wrong.values())))
        self.rejected += len(wrong) if count is None else count
        for name, message in wrong.items():
            if name not in self._warned and len(self._warned) < _MAX_WARNINGS:
                self._warned.add(name)
                warn(f"{message}. It is left out and counted, and not warned about again", _users_level())

    def _admit(self, values: Sorted) -> None:
        """Leave out names beyond the limit, and reject what is wrong."""
        parts: tuple[dict[str, Any], ...] = (values.numbers, values.device, values.media)
        new = [key for part in parts for key in part if key not in self._keys]
        for key in new[max(0, MAX_KEYS - len(self._keys)) :]:
            for part in parts:
                part.pop(key, None)
            advice = "put what varies (an id, a batch) into the step, not the name"
            values.wrong[key] = (
                f"metric {key!r} is one name too many: a run has at most {MAX_KEYS:,}; {advice}"
            )
        if values.wrong:
            self.reject(values.wrong)
        self._keys.update(key for part in parts for key in part)


def _users_level() -> int:
    """The ``stacklevel`` with which a :func:`warn` of the caller names the user's line that called log()."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level = level + 1
    return level


def _describe_step(step: Any) -> str:
    if isinstance(step, (int, float, str)):
        return repr(step)[:80]
    return f"of type {type(step).__qualname__}"


def _int64(step: Any) -> int | None:
    try:
        number = int(step.__index__())
    except (AttributeError, TypeError):
        return None
    if not -(2**63) <= number < 2**63:
        return None
    return number
