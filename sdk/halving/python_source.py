"""Python's source text as a syntax tree, safe in any thread."""

import ast
import threading
from typing import Literal, overload

_PARSING = threading.Lock()


@overload
def parse_python(text: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse_python(text: str, mode: Literal["eval"]) -> ast.Expression: ...


def parse_python(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """Parse a text as :func:`ast.parse` does, in one thread at a time.

    CPython up to 3.12.1 confuses the depths of trees that two threads build at once, and raises SystemError
    (python/cpython#106905).

    Args:
        text: a module, or an expression.
        mode: ``"exec"`` for a module, ``"eval"`` for an expression.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as :func:`ast.parse`.
    """
    with _PARSING:
        if mode == "eval":
            return ast.parse(text, mode="eval")  # noqa: TID251
        return ast.parse(text)  # noqa: TID251
