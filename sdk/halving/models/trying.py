"""Tries an exported folder before it has its name, in a clean process: its answers and its graph."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import ExtraMissing, InvalidInput, StoreError
from halving.models.answering import ANSWERS, EXAMPLE, ROWS
from halving.models.exported import CODE
from halving.models.model import WrongPrediction
from halving.models.onnx_model import OnnxDiffers
from halving.store.json_files import to_json

if TYPE_CHECKING:
    import pyarrow as pa

SECONDS = 600.0
"""The time after which the process is ended, because the predictor seems to wait for something."""
_BEGIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from halving.models.answering import main; "
    "main(*sys.argv[2:])"
)
_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (ExtraMissing, OnnxDiffers, StoreError, WrongPrediction)
}
_MAX_OUTPUT = 500  # characters that are quoted of a process' output, if it ended without an answer


def try_folder(folder: Path, work: Path, rows: "pa.Table", example: dict[str, Any]) -> Any:
    """Let the model of an exported folder answer rows, and return the answers as JSON.

    With an exporter, ``work`` has the graph afterwards.

    Args:
        work: an empty folder for what the process reads and writes.
        example: the first of the rows as JSON, which must be read as the same rows.

    Raises:
        ExtraMissing: a package that is needed for it is not installed.
        InvalidInput: the folder's model cannot be loaded on its own, or raised.
        OnnxDiffers: the graph answers something else.
        WrongPrediction: the predictor returned something else than a prediction for each row.
    """
    import pyarrow as pa

    with pa.OSFile(str(work / ROWS), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    (work / EXAMPLE).write_bytes(to_json(example))
    ended = _run(folder, work)
    if not (work / ANSWERS).exists():
        output = (work / "said").read_text(errors="replace").strip()[-_MAX_OUTPUT:]
        ending = ": ".join(filter(None, [ended, output]))
        raise InvalidInput(f"the exported model ended without an answer, {ending}")
    report = json.loads((work / ANSWERS).read_text(encoding="utf-8"))
    if "error" in report:
        raise _ERRORS.get(report["error"], InvalidInput)(
            f"the exported model does not answer on its own: {report['message']}"
        )
    return report["answers"]


def _run(folder: Path, work: Path) -> str:
    """Run the process to its end, and say how it ended."""
    arguments = [str(folder / CODE), str(folder), str(work), json.dumps(_package_folders())]
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("HALVING_", "DAGSTER_"))
    }
    with (
        (work / "said").open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", _BEGIN, *arguments],
            stdin=subprocess.PIPE,  # closed when this process ends, however it does
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=clean,
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return f"after {SECONDS:g} seconds"
        finally:
            with suppress(ProcessLookupError):  # ends all that it has started, too
                os.killpg(process.pid, signal.SIGKILL)
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"with exit code {code}"


def _package_folders() -> list[str]:
    """The folders on the path that packages were installed into: those that have the packages' metadata."""
    return [
        path
        for path in sys.path
        if path and Path(path).is_dir() and next(Path(path).glob("*.dist-info"), None) is not None
    ]
