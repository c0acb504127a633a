"""A model as an ONNX graph, if its spec names an ``exporter``, checked against the predictor."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import ExtraMissing, HalvingError, InvalidInput
from halving.models.exported import import_named
from halving.models.manifest import Manifest
from halving.run.trained_run import TrainedRun
from halving.trial.import_string import where

if TYPE_CHECKING:
    import pyarrow as pa

_TOLERANCE = 1e-4  # relative and absolute: runtimes order sums differently in 32 bits


class OnnxDiffers(HalvingError, RuntimeError):
    """The exporter's graph does not answer as the predictor does; nothing was exported."""


def write_onnx(run: TrainedRun, manifest: Manifest, rows: "pa.Table", answers: Any, file: Path) -> None:
    """Call ``exporter(run)``, which returns an ONNX model or its bytes, and write that.

    The graph's inputs have the names of the columns, with the rows first: shape ``(rows,)``, or ``(rows, n)``
    for a column of lists. Its first output is what the predictor returns; a dict of probabilities is an array
    with its columns.

    Raises:
        ExtraMissing: onnx or onnxruntime is not installed.
        InvalidInput: the exporter raised, or returned something else.
        OnnxDiffers: the graph answers something else, for these rows.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise ExtraMissing(
            f"exporter {manifest.exporter} needs the package {error.name}: pip install 'halving[onnx]'"
        ) from None
    exporter = import_named("exporter", str(manifest.exporter))
    try:
        exported = exporter(run)
    except Exception as error:
        raise InvalidInput(
            f"exporter {manifest.exporter} raised {type(error).__name__} at {where(error)}: {error}"
        ) from error
    if isinstance(exported, bytes):
        content = exported
    elif isinstance(exported, onnx.ModelProto):
        content = exported.SerializeToString()
    else:
        raise InvalidInput(
            f"exporter {manifest.exporter} returned {type(exported).__qualname__}: return an "
            "onnx.ModelProto, or its bytes"
        )
    try:
        onnx.checker.check_model(content)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [graph_input.name for graph_input in session.get_inputs()]
        unknown = sorted(set(names) - set(rows.column_names))
        if unknown:
            raise InvalidInput(
                f"exporter {manifest.exporter} named an input {unknown[0]!r}, which is no column: "
                f"{rows.column_names}"
            )
        outputs = session.run(None, {name: _array(rows.column(name)) for name in names})
    except HalvingError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"the graph of exporter {manifest.exporter} cannot be run: {type(error).__name__}: {error}"
        ) from error
    _compare(outputs[0].tolist(), answers, f"the graph of exporter {manifest.exporter}")
    file.write_bytes(content)


def _compare(actual: list[Any], answers: Any, graph: str) -> None:
    """Raise unless a graph's answers are those of the predictor."""
    expected = answers
    if isinstance(answers, dict):
        expected = [list(row) for row in zip(*answers.values(), strict=True)]
    if len(actual) != len(expected):
        raise OnnxDiffers(f"{graph} gives {len(actual)} answers for {len(expected)} rows")
    wrong = [row for row, pair in enumerate(zip(actual, expected, strict=True)) if not _is_same(*pair)]
    if wrong:
        row = wrong[0]
        raise OnnxDiffers(
            f"{graph} answers {actual[row]!r} to row {row} of the test split where the predictor answers "
            f"{expected[row]!r}; {len(wrong)} of {len(actual)} rows differ"
        )


def _array(column: "pa.ChunkedArray") -> Any:
    import pyarrow as pa

    whole = column.combine_chunks()
    if pa.types.is_fixed_size_list(whole.type):
        return whole.flatten().to_numpy(zero_copy_only=False).reshape(len(whole), -1)
    return whole.to_numpy(zero_copy_only=False)


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    if isinstance(left, float) or isinstance(right, float):
        are_nan = left != left and right != right
        return are_nan or math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return bool(left == right)
