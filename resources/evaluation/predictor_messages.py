"""Messages from a predictor's process to the process that started it, as bytes.

The predictor's process runs a user's code, so nothing that it sends is ever unpickled: a message is JSON
followed by arrays of fixed types, and everything in it is checked when it is read.

A predictor sends an :class:`Answer` for each batch of rows, and :class:`Done` after the last. Every other
process sends one message.

A message is the length of the JSON (8 bytes, big-endian), the JSON, and its parts one after another;
``parts`` in it are their lengths.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halving.run.evaluation import Evaluation
from resources.evaluation.columns import Coded

VALUE_TYPES = (str, int, float, bool, type(None))
"""The types that a prediction or a class may have."""

PLOTLY = "application/vnd.plotly.v1+json"
_MAX_JSON = 256 << 20  # bytes; in memory it becomes several times as much


@dataclass(frozen=True)
class Answer:
    """What a predictor returned for a batch: predictions, or probabilities of shape (rows, classes)."""

    predictions: Coded | NDArray[np.float64] | None
    probabilities: NDArray[Any] | None = None
    classes: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        """The number of rows."""
        for column in (self.predictions, self.probabilities):
            if column is not None:
                return len(column)
        return 0


@dataclass(frozen=True)
class Done:
    """The end of a predictor's answers, with the number of rows."""

    rows: int


@dataclass(frozen=True)
class Figure:
    """A figure of an evaluator: a picture, or a Plotly figure as JSON."""

    title: str
    media_type: str
    content: bytes


@dataclass(frozen=True)
class Evaluated:
    """What an evaluator returned; its figures are here, and no longer in the evaluation."""

    evaluation: Evaluation
    figures: list[Figure]


@dataclass(frozen=True)
class Served:
    """What serving costs: latencies in ms, peak memory in bytes, and the error that ended the measurement."""

    one_row: dict[str, float] | None = None
    batch: dict[str, float] | None = None
    peak_memory_bytes: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Failed:
    """Why there is no answer."""

    reason: str


Message = Answer | Done | Evaluated | Served | Failed


class Unreadable(ValueError):
    """Raised when the bytes are no message."""


def to_bytes(message: Message) -> bytes:
    """Encode a message; its values must be of :data:`VALUE_TYPES`."""
    match message:
        case Answer(predictions=None):
            probabilities = np.ascontiguousarray(message.probabilities, np.float64)
            return _encode(
                {"kind": "probabilities", "shape": probabilities.shape, "classes": message.classes},
                [probabilities.tobytes()],
            )
        case Answer(predictions=Coded() as column):
            return _encode(
                {"kind": "values", "values": column.values},
                [np.ascontiguousarray(column.codes, np.int32).tobytes()],
            )
        case Answer():
            return _encode(
                {"kind": "numbers"}, [np.ascontiguousarray(message.predictions, np.float64).tobytes()]
            )
        case Evaluated():
            evaluation = message.evaluation
            about = {
                "kind": "evaluation",
                "metrics": evaluation.metrics,
                "scores": list(evaluation.scores),
                "lower_is_better": list(evaluation.lower_is_better),
                "figures": [(figure.title, figure.media_type) for figure in message.figures],
            }
            columns = [
                np.ascontiguousarray(column, np.float64).tobytes() for column in evaluation.scores.values()
            ]
            return _encode(about, [*columns, *(figure.content for figure in message.figures)])
        case Done() | Served() | Failed():
            return _encode({"kind": type(message).__name__.lower(), **message.__dict__}, [])


def from_bytes(content: bytes | bytearray) -> Message:
    """Decode a message.

    Raises:
        Unreadable: the bytes are no message.
    """
    try:
        about, parts = _decode(memoryview(content))
        return _message(about, parts)
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        RecursionError,
        AttributeError,
        OverflowError,
        RuntimeError,
    ) as error:
        raise Unreadable(f"it sent a message that is not valid: {type(error).__name__}: {error}") from error


def _encode(about: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    header = json.dumps({**about, "parts": [len(part) for part in parts]}).encode()
    return b"".join([len(header).to_bytes(8, "big"), header, *parts])


def _decode(content: memoryview) -> tuple[dict[str, Any], list[memoryview]]:
    size = int.from_bytes(content[:8], "big")
    if size > min(_MAX_JSON, len(content) - 8):
        raise ValueError(f"{size} bytes of JSON in {len(content)}")
    about = json.loads(bytes(content[8 : 8 + size]))
    start = 8 + size
    parts = []
    for length in about["parts"]:
        if type(length) is not int or not 0 <= length <= len(content) - start:
            raise ValueError(f"a part of {length} bytes")
        parts.append(content[start : start + length])
        start += length
    return about, parts


def _message(about: dict[str, Any], parts: list[memoryview]) -> Message:
    match about["kind"]:
        case "probabilities":
            classes = about["classes"]
            (rows, columns) = about["shape"]
            probabilities = np.frombuffer(parts[0], np.float64).reshape(_count(rows), _count(columns))
            if classes is not None:
                classes = tuple(_check_values(classes))
            return Answer(None, probabilities, classes)
        case "numbers":
            return Answer(np.frombuffer(parts[0], np.float64))
        case "values":
            values = _check_values(about["values"])
            codes = np.frombuffer(parts[0], np.int32)
            if len(codes) and not 0 <= codes.min() <= codes.max() < len(values):
                raise ValueError("a code of no value")
            return Answer(Coded(values, codes))
        case "done":
            return Done(_count(about["rows"]))
        case "evaluation":
            names = about["scores"]
            figures = about["figures"]
            columns = [np.frombuffer(part, np.float64) for part in parts[: len(names)]]
            scores = dict(zip(names, columns, strict=True))
            evaluation = Evaluation(
                metrics=about["metrics"], scores=scores, lower_is_better=_texts(about["lower_is_better"])
            )
            contents = zip(figures, parts[len(names) :], strict=True)
            return Evaluated(
                evaluation, [_figure(title, media_type, part) for (title, media_type), part in contents]
            )
        case "served":
            peak = about["peak_memory_bytes"]
            error = about["error"]
            if peak is not None:
                _count(peak)
            if error is not None:
                _text(error)
            return Served(_latencies(about["one_row"]), _latencies(about["batch"]), peak, error)
        case "failed":
            return Failed(_text(about["reason"]))
        case kind:
            raise ValueError(f"a message of the kind {kind!r:.100}")


def _figure(title: Any, media_type: Any, content: memoryview) -> Figure:
    if media_type != PLOTLY and not re.fullmatch(r"image/[a-z0-9.+-]+", media_type):
        # Checked because it becomes a part of the page.
        raise ValueError(f"a figure of the type {media_type!r:.100}")
    return Figure(_text(title), _text(media_type), bytes(content))


def _latencies(values: Any) -> dict[str, float] | None:
    if values is None:
        return None
    return {key: _number(value) for key, value in values.items()}


def _check_values(values: Any) -> list[Any]:
    if not isinstance(values, list) or any(type(value) not in VALUE_TYPES for value in values):
        raise TypeError("values other than texts, numbers, booleans and null")
    return values


def _texts(values: Any) -> list[str]:
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"a {type(value).__name__} where a text must be")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"a {type(value).__name__} where a number must be")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r:.100} where a count must be")
    return value


__all__ = [
    "PLOTLY",
    "VALUE_TYPES",
    "Answer",
    "Done",
    "Evaluated",
    "Failed",
    "Figure",
    "Message",
    "Served",
    "Unreadable",
    "from_bytes",
    "to_bytes",
]
