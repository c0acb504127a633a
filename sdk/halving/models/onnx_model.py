"""A model as an ONNX graph, where its spec names an ``exporter``, checked against the predictor."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import ExtraMissing, HalvingError, InvalidInput
from halving.models.exported import imported
from halving.models.manifest import Manifest
from halving.run.trained_run import TrainedRun
from halving.trial.import_string import where

if TYPE_CHECKING:
    import pyarrow as pa

_TOLERANCE = 1e-4  # relative and absolute: runtimes order sums differently in 32 bits


class OnnxDiffers(HalvingError, RuntimeError):
    """The exporter's graph does not answer as the predictor does; nothing was exported."""


def write_onnx(run: TrainedRun, manifest: Manifest, rows: "pa.Table", answers: Any, file: Path) -> None:
    """Call ``exporter(run)``, which returns an ONNX model or its bytes, and write it.

    The graph's inputs are named as the columns are, with the rows first: shape ``(rows,)``, or ``(rows, n)``
    for a column of lists. Its first output is what the predictor returns, of a dict of probabilities the
    array with its columns.

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
    exporter = imported("exporter", str(manifest.exporter))
    try:
        made = exporter(run)
    except Exception as error:
        raise InvalidInput(
            f"exporter {manifest.exporter} raised {type(error).__name__} at {where(error)}: {error}"
        ) from error
    content = (
        made
        if isinstance(made, bytes)
        else made.SerializeToString()
        if isinstance(made, onnx.ModelProto)
        else None
    )
    if content is None:
        raise InvalidInput(
            f"exporter {manifest.exporter} returned {type(made).__qualname__}: return an onnx.ModelProto, "
            "or its bytes"
        )
    try:
        onnx.checker.check_model(content)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        unknown = sorted({one.name for one in session.get_inputs()} - set(rows.column_names))
        if unknown:
            raise InvalidInput(
                f"exporter {manifest.exporter} named an input {unknown[0]!r}, which is no column: "
                f"{rows.column_names}"
            )
        outputs = session.run(None, {one.name: _array(rows.column(one.name)) for one in session.get_inputs()})
    except HalvingError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"the graph of exporter {manifest.exporter} cannot be run: {type(error).__name__}: {error}"
        ) from error
    got = outputs[0].tolist()
    expected = (
        [list(row) for row in zip(*answers.values(), strict=True)] if isinstance(answers, dict) else answers
    )
    if len(got) != len(expected):
        raise OnnxDiffers(
            f"the graph of exporter {manifest.exporter} gives {len(got)} answers for {len(expected)} rows"
        )
    wrong = [row for row, both in enumerate(zip(got, expected, strict=True)) if not _same(*both)]
    if wrong:
        raise OnnxDiffers(
            f"the graph of exporter {manifest.exporter} answers {got[wrong[0]]!r} to row {wrong[0]} of the "
            "test split where the predictor "
            f"answers {expected[wrong[0]]!r}; {len(wrong)} of {len(got)} rows differ"
        )
    file.write_bytes(content)


def _array(column: "pa.ChunkedArray") -> Any:
    import pyarrow as pa

    whole = column.combine_chunks()
    if pa.types.is_fixed_size_list(whole.type):
        return whole.flatten().to_numpy(zero_copy_only=False).reshape(len(whole), -1)
    return whole.to_numpy(zero_copy_only=False)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE) or (
            one != one and other != other
        )
    return bool(one == other)
