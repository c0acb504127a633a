"""The process that tries an exported folder, with nothing but the folder's code and installed packages.

It runs before the folder has its name, started isolated (``python -I``) with the folder's ``code`` first on
the import path (:mod:`halving.models.trying`).
"""

import json
import os
import signal
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halving.errors import HalvingError, InvalidInput
from halving.models.example import as_json
from halving.models.exported import ONNX
from halving.models.inputs import checked_inputs
from halving.models.model import load_exported
from halving.models.onnx_model import write_onnx
from halving.store.json_files import to_json
from halving.trial.import_string import where

ROWS = "rows.arrow"
EXAMPLE = "example.json"
ANSWERS = "answers.json"


def main(folder: str, work: str, installed: str) -> None:
    """Answer the rows in ``work``, and make the graph there.

    ``installed`` is a JSON list of the folders that packages are installed in.
    """
    end_with_asker()
    _only(folder, json.loads(installed))
    try:
        report = {"answers": _answers(Path(folder), Path(work))}
    except HalvingError as error:
        report = {"error": type(error).__name__, "message": str(error)}
    except Exception as error:  # noqa: BLE001  # a predictor may raise anything
        message = f"the predictor raised {type(error).__name__} at {where(error)}: {error}"
        report = {"error": InvalidInput.__name__, "message": message}
    (Path(work) / ANSWERS).write_bytes(to_json(report))


def end_with_asker() -> None:
    """End this process and all that it has started when the other end of its standard input is closed.

    That means the caller was killed. This process must lead a process group of its own, which the caller also
    ends afterwards. Code that runs here finds nothing on the standard input. A process waits for the end and
    not a thread, because code that keeps the interpreter's lock would never let a thread run.
    """
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                # Its parent has ended, so code that waits for all of its children does not wait for it.
                os.read(0, 1)  # returns when the other end is closed, because nothing is ever written there
                os.killpg(0, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def to_json_values(predicted: Any) -> Any:
    """Convert what a predictor returned to JSON values: a list, or a dict of lists."""
    if isinstance(predicted, Mapping):
        return {str(label): to_json_values(column) for label, column in predicted.items()}
    if hasattr(predicted, "tolist"):
        predicted = predicted.tolist()
    return [_value(item) for item in predicted]


def _answers(folder: Path, work: Path) -> Any:
    import pyarrow as pa

    model = load_exported(folder)
    with pa.OSFile(str(work / ROWS)) as file:
        rows = pa.ipc.open_file(file).read_all()
    example = checked_inputs(json.loads((work / EXAMPLE).read_text(encoding="utf-8")), model.input_schema)
    if to_json(as_json(example)) != to_json(as_json(rows.slice(0, example.num_rows))):
        raise InvalidInput("the example of the inputs, as JSON, is not read as the rows that it was made of")
    answers = to_json_values(model.predict(rows))
    if model.manifest.exporter is not None:
        write_onnx(model.run, model.manifest, rows, answers, work / ONNX)
    return answers


def _value(value: Any) -> Any:
    if hasattr(value, "as_py"):
        value = value.as_py()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    return str(value)


def _only(folder: str, installed: Sequence[str]) -> None:
    """Allow imports only of the folder's code, Python's own modules and installed packages.

    Nothing is imported from a checkout, so packages that are installed as editable are excluded.
    """
    own = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
    python = [path for path in sys.path if path and _is_of_python(Path(path).resolve(), own)]
    sys.path[:] = [str(Path(folder, "code")), *python, *installed]
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if not getattr(finder, "__module__", "").startswith("__editable__")
    ]


def _is_of_python(path: Path, own: Sequence[Path]) -> bool:
    return path.suffix == ".zip" or (
        any(path.is_relative_to(root) for root in own) and path.name not in ("site-packages", "dist-packages")
    )
