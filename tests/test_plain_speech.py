"""Names say what they hold, and a line holds one thought."""

import ast
import re
from collections.abc import Iterator

import pytest

from halving.python_source import parse_python
from tests.backends import CHECKOUT

EMPTY = {
    "found",
    "given",
    "known",
    "one",
    "asked",
    "told",
    "seen",
    "shown",
    "plain",
    "moment",
    "most",
    "least",
}
"""Names that say nothing of what they hold, with or without underscores around them."""

PACKAGES = (
    "assets",
    "benchmarks",
    "commands",
    "examples",
    "pipelines",
    "resources",
    "sdk",
    "server",
    "tests",
)
MAX_CONDITIONALS = 6
"""Conditional expressions in 1,000 lines; Optuna, torchtitan, Datasette and Starlette have 2 to 6."""

# What a name in JavaScript stands behind: a declaration, or the parameters of a function.
_DECLARED = re.compile(r"\b(?:const|let|var|function|class|catch)\s*\(?\s*(\w+|[\[{][^;]*?[\]}])(?=\W)")
_PARAMETERS = re.compile(r"\bfunction\s*\w*\s*\(([^)]*)\)|\(([^()]*)\)\s*=>|(\w+)\s*=>")
_NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)


def modules(package: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((CHECKOUT / package).rglob("*.py")):
        if not {"node_modules", "versions"} & set(path.parts):
            yield path.relative_to(CHECKOUT).as_posix(), parse_python(path.read_text())


def names_of(node: ast.AST) -> Iterator[str]:
    """Names that a node of a syntax tree gives to something."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name


def is_empty(name: str) -> bool:
    return name.strip("_").lower() in EMPTY


def script_names(text: str) -> Iterator[str]:
    """Names that a script of the page gives to variables, parameters, functions and classes."""
    code = _NOT_CODE.sub(" ", text)
    for match in [*_DECLARED.finditer(code), *_PARAMETERS.finditer(code)]:
        for group in filter(None, match.groups()):
            # `{value: renamed = 3}` gives the name behind the colon.
            yield from re.findall(r"\w+(?!\w*\s*:)", re.sub(r"=[^,}\]]*", "", group))


@pytest.mark.parametrize("package", PACKAGES)
def test_names_say_what_they_hold_and_a_line_holds_one_thought(package: str) -> None:
    faults = []
    conditionals = 0
    lines = 0
    for path, module in modules(package):
        lines += max((node.end_lineno or 0 for node in module.body), default=0)
        for node in ast.walk(module):
            faults += [f"{path}:{node.lineno}: {name}" for name in names_of(node) if is_empty(name)]
            if assigns_side_by_side(node):
                faults.append(f"{path}:{node.lineno}: values that are assigned side by side")
            if imports_a_test(node):
                faults.append(f"{path}:{node.lineno}: what two tests need stands in a helper module")
            if isinstance(node, ast.IfExp):
                conditionals += 1
                if holds_conditional(node):
                    faults.append(f"{path}:{node.lineno}: a conditional expression within another")
    assert not faults, "\n".join(faults)
    assert conditionals <= MAX_CONDITIONALS * lines / 1000


def assigns_side_by_side(node: ast.AST) -> bool:
    """Whether a node is ``a, b = x, y`` where no value reads a target, as it does in an exchange."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            read = {
                ast.unparse(part)
                for value in values
                for part in ast.walk(value)
                if isinstance(part, ast.expr)
            }
            return read.isdisjoint(ast.unparse(target) for target in targets)
    return False


def holds_conditional(node: ast.IfExp) -> bool:
    return any(part is not node and isinstance(part, ast.IfExp) for part in ast.walk(node))


def imports_a_test(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and ".test_" in (node.module or "")


def test_names_in_the_pages_scripts_say_what_they_hold() -> None:
    faults = []
    for path in sorted((CHECKOUT / "server" / "static").rglob("*.js")):
        if "vendor" not in path.parts:
            names = filter(is_empty, script_names(path.read_text()))
            faults += [f"{path.relative_to(CHECKOUT)}: {name}" for name in names]
    assert not faults, "\n".join(faults)


def test_names_are_seen_wherever_something_gets_them() -> None:
    text = """
        const found = 1; let [a, given] = []; let {b: known, one = 2} = c;
        function asked(told, seen) { return (shown) => plain => moment; }
        // const most = "const least = 1";
    """
    assert EMPTY - set(script_names(text)) == {"moment", "most", "least"}
    module = (
        "def found(given, *known, one=1):\n for told in x: y.seen = [z for shown in z]\nclass Plain: pass"
    )
    names = {name.lower() for node in ast.walk(parse_python(module)) for name in names_of(node)}
    assert EMPTY - names == {"asked", "moment", "most", "least"}
