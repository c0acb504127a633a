"""MLflow's own grammar of filters and orders, from its package."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from halving.errors import ExtraMissing
from server.mlflow.refusals import Refused


def search_utils(name: str) -> Any:
    """A class of ``mlflow.utils.search_utils``. The first time it takes seconds.

    Raises:
        ExtraMissing: MLflow's package is not installed.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
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
