"""MLflow's own grammar of filters and orders, from its package.

To import it takes seconds: its package imports all of MLflow's client, pandas among it. So that nobody waits for that, it is imported in a
thread as soon as a client of MLflow's has asked for anything; servers that no such client uses do without its 80 MB.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from halving.errors import ExtraMissing
from server.mlflow.refusals import Refused

_importing = threading.Lock()  # of two threads that import one package in another order, Python gives one a half of it
_begun = threading.Event()


def import_soon() -> None:
    """Import the grammar in a thread, once."""
    if not _begun.is_set():
        _begun.set()
        threading.Thread(target=_import_quietly, name="halving-mlflow-grammar", daemon=True).start()


def search_utils(name: str) -> Any:
    """A class of ``mlflow.utils.search_utils``; waits for the import.

    Raises:
        ExtraMissing: MLflow's package is not installed.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        with _importing:
            from mlflow.utils import search_utils as found
    except ImportError as error:
        raise ExtraMissing(f"filters of MLflow need the package mlflow-skinny: pip install 'halving-platform[mlflow]' ({error})") from None
    return getattr(found, name)


@contextmanager
def its_errors() -> Iterator[None]:
    """What MLflow's package raises in the ``with`` block as a refusal."""
    try:
        yield
    except Exception as error:
        code = getattr(error, "error_code", None)
        if not isinstance(code, str):
            raise
        raise Refused(code, str(getattr(error, "message", error))) from None


def _import_quietly() -> None:
    with contextlib.suppress(ExtraMissing):  # the first search with a filter says so
        search_utils("SearchUtils")
