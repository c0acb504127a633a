"""MLflow's own grammar of filters and orders, from its package.

Importing it takes seconds, because its package imports all of MLflow's client and pandas. So a thread imports
it at the first request of an MLflow client; servers without such clients do without its 80 MB.
"""

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from halving.errors import ExtraMissing
from server.mlflow.refusals import Refused

# If two threads import a package's modules in different orders, one may see half of it.
_importing = threading.Lock()
_begun = threading.Event()


def import_soon() -> None:
    """Import the grammar in a thread, once."""
    if not _begun.is_set():
        _begun.set()
        threading.Thread(target=_import_quietly, name="halving-mlflow-grammar", daemon=True).start()


def search_utils(name: str) -> Any:
    """A class of ``mlflow.utils.search_utils``; waits until it is imported.

    Raises:
        ExtraMissing: MLflow's package is not installed.
    """
    with _imports():
        from mlflow.utils import search_utils as module

        module._like = like
        module._ilike = ilike
    return getattr(module, name)


def model_comparisons(text: str) -> list[Any]:
    """Parse a filter of logged models into comparisons, which are joined by AND.

    Each has ``entity.type``, ``entity.key``, ``op`` and ``value``.

    Raises:
        ExtraMissing: MLflow's package is not installed.
        Refused: it is no such filter.
    """
    with _imports():
        from mlflow.utils.search_logged_model_utils import parse_filter_string
    try:
        with its_errors():
            comparisons: list[Any] = parse_filter_string(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        # Raised by Python's own parser of numbers and tuples.
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Invalid filter string: {text[:200]!r}. A value is neither a number nor a text.",
        ) from None
    return comparisons


def like(text: str, pattern: str) -> bool:
    """Whether a text is ``LIKE`` a pattern, as in MLflow's SQL stores.

    ``%`` and ``_`` match line breaks, too.

    It takes a time of at most their lengths' product; the regular expression of MLflow's package hangs.
    """
    return _is_like(text, pattern, 0)


def ilike(text: str, pattern: str) -> bool:
    """As :func:`like`, ignoring the case of A to Z, and of no other letters.

    :mod:`halving.query.run_filter` and MLflow's SQLite store do the same.
    """
    return _is_like(text, pattern, re.IGNORECASE | re.ASCII)


@contextmanager
def its_errors() -> Iterator[None]:
    """Turn errors that MLflow's package raises in the ``with`` block into refusals."""
    try:
        yield
    except Exception as error:
        code = getattr(error, "error_code", None)
        if not isinstance(code, str):
            raise
        raise Refused(code, str(getattr(error, "message", error))) from None


@contextmanager
def _imports() -> Iterator[None]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        with _importing:
            yield
    except ImportError as error:
        raise ExtraMissing(
            "filters of MLflow need the package mlflow-skinny: pip install 'halving-platform[mlflow]' "
            f"({error})"
        ) from None


def _is_like(text: str, pattern: str, flags: int) -> bool:
    if len(pattern) - pattern.count("%") > len(text):
        return False
    return _expression(re.sub("%+", "%", pattern), flags).match(text) is not None


@lru_cache(8)
def _expression(pattern: str, flags: int) -> re.Pattern[str]:
    """Translate a pattern into a regular expression without backtracking.

    Each part matches where it is found first. That is enough, because a later place never leaves more room
    for what follows.
    """
    first, *others = [re.escape(part).replace("_", ".") for part in pattern.split("%")]
    *before, last = [first, *(f".*?{part}" for part in others)]
    if not pattern.endswith("%"):
        last += r"\Z"
    return re.compile("".join(f"(?>{part})" for part in [*before, last]), flags | re.DOTALL)


def _import_quietly() -> None:
    with contextlib.suppress(ExtraMissing):  # the first search with a filter says so
        search_utils("SearchUtils")
