"""Constraints between hyperparameters: comparisons such as ``hidden * batch_size <= 8192``.

They are parsed once and evaluated safely. A name that is no word of letters, digits and ``_`` is written
``params["batch-size"]``; a column's name in a slice ``columns["capital gain"]``.
"""

import ast
import json
import keyword
import math
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import simpleeval

from halving.errors import InvalidInput
from halving.python_source import parse_python
from halving.text import comma_list, count_of, did_you_mean

_FUNCTIONS = {"min": min, "max": max, "abs": abs, "log": math.log, "sqrt": math.sqrt}
_OF_ONE = ("abs", "log", "sqrt")  # functions of one argument
_OPERATORS = {
    operator: simpleeval.DEFAULT_OPERATORS[operator]
    for operators in (
        (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
        (ast.USub, ast.UAdd, ast.Not),
        (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    )
    for operator in operators
}
# simpleeval refuses a node only when it evaluates it, so what follows an `and` or `or` could be refused in
# the middle of a search. It also evaluates more than comparisons: attributes, subscripts, f-strings. Hence a
# list of our own, which is checked first.
_ACCEPTED = (
    *_OPERATORS,
    ast.boolop,
    ast.expr_context,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.Compare,
    ast.Call,
    ast.Name,
    ast.Constant,
)
_MAX_LENGTH = 1_000  # characters
_MAX_DEPTH = 50  # operations inside one another, because each is a nested call when it is evaluated
_OF_NAMES = ("params", "columns")
_GRAMMAR = (
    "give a comparison of hyperparameters by + - * / // % ** == != < <= > >= and or not, and "
    f"{', '.join(_FUNCTIONS)}; "
    'write a name that is no word as params["the-name"]'
)


class Constraint:
    """One expression over hyperparameters.

    Args:
        expression: the text that a user wrote.

    Raises:
        InvalidInput: it is not such a comparison.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._tree, self.names = _parse(expression)
        """The hyperparameters that it compares."""

    def holds(self, params: Mapping[str, Any]) -> bool:
        """Whether params meet the constraint.

        They meet it if one of its names has no value (an inactive conditional parameter). They do not where
        the expression has no value, such as the logarithm of 0.

        Raises:
            InvalidInput: it compares what cannot be compared, such as a number with a text.
        """
        if any(name not in params for name in self.names):
            return True
        try:
            return bool(
                simpleeval.SimpleEval(_OPERATORS, _FUNCTIONS, dict(params)).eval(self.expression, self._tree)
            )
        except (ArithmeticError, ValueError):
            return False
        except (TypeError, simpleeval.InvalidExpression) as error:
            compared = comma_list(f"{name} = {params[name]!r}" for name in sorted(self.names))
            raise InvalidInput(
                f"constraint {self.expression!r} has no answer for {compared}: {error}; "
                "compare numbers with numbers, texts with texts"
            ) from None


@lru_cache(maxsize=1024)
def constraint(expression: str) -> Constraint:
    """The constraint of an expression, parsed at its first use.

    Raises:
        InvalidInput: as :class:`Constraint`.
    """
    return Constraint(expression)


def quote_name(name: str) -> str:
    """Write any name for an expression: ``params["batch-size"]``."""
    return f"params[{json.dumps(name, ensure_ascii=False)}]"


def is_word(name: str) -> bool:
    """Whether a name can stand in an expression unquoted.

    Python takes some letters for others: ``µ``, the sign, for ``μ``.
    """
    return name.isidentifier() and not keyword.iskeyword(name) and unicodedata.is_normalized("NFKC", name)


class _QuotedNames(ast.NodeTransformer):
    """Turns ``params["batch-size"]`` into a name; functions can only be called by an unquoted name."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        name = node.slice
        if not isinstance(node.value, ast.Name) or node.value.id not in _OF_NAMES:
            return node
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return node
        return ast.copy_location(ast.Name(name.value, ast.Load()), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(value) for value in node.args]
        return node


def _parse(expression: str) -> tuple[ast.AST, frozenset[str]]:
    """Parse an expression into a tree, with the hyperparameters that it names."""
    if len(expression) > _MAX_LENGTH:
        raise InvalidInput(
            f"it has {len(expression)} characters; give at most {_MAX_LENGTH}, or several constraints"
        )
    try:
        tree = parse_python(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(f"it is no expression ({getattr(error, 'msg', error)}); {_GRAMMAR}") from None
    if not _is_flat(tree, _MAX_DEPTH):
        raise InvalidInput(
            f"its operations are more than {_MAX_DEPTH} deep inside one another; give several constraints"
        )
    tree = _QuotedNames().visit(tree)
    called = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _check_call(node)
            called.add(node.func)
        elif not isinstance(node, _ACCEPTED):
            raise InvalidInput(
                f"{ast.unparse(node) or 'this kind of expression'} is not accepted in it; {_GRAMMAR}"
            )
    if not _compares(tree):
        raise InvalidInput(f"it compares nothing; {_GRAMMAR}")
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in called)
    if not names:
        raise InvalidInput(f"it names no hyperparameter; {_GRAMMAR}")
    return tree, names


def _is_flat(tree: ast.AST, depth: int) -> bool:
    """Whether no node is deeper than ``depth``; checked level by level, without recursion."""
    level = [tree]
    for _ in range(depth):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return not level


def _check_call(node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
        hint = did_you_mean(ast.unparse(node.func), _FUNCTIONS)
        raise InvalidInput(f"{ast.unparse(node)!r} is no call of {comma_list(_FUNCTIONS)}{hint}; {_GRAMMAR}")
    name = node.func.id
    count = len(node.args)
    wanted = "two or more"
    is_wrong = count < 2
    if name in _OF_ONE:
        wanted = "one"
        is_wrong = count != 1
    if is_wrong:
        raise InvalidInput(f"{ast.unparse(node)!r} has {count_of(count, 'argument')}; {name} takes {wanted}")


def _compares(node: ast.AST) -> bool:
    if isinstance(node, ast.BoolOp):
        return all(_compares(value) for value in node.values)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not) and _compares(node.operand)
    return isinstance(node, ast.Compare)
