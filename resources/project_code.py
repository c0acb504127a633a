"""A digest of the project code that a function uses: while it is the same, the function does the same.

What the function uses is found in the text of the project's modules, by names and Python's rules of scope;
nothing is executed. So neither the state of a process nor the place of the project counts. What is reached in
other ways, as by ``getattr``, is not seen. Of an installed package only the names count, because its version
is in the lineage; a package that pip installed from a folder counts as project code.
"""

import ast
import json
import symtable
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import sha256

from halving.models.source_code import own_module
from halving.python_source import parse_python
from halving.trial.import_string import import_function

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Scopes whose names are not the module's.
_INNER_SCOPES = (*_SCOPES, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MAX_MODULES = 20
"""Modules that are kept parsed, because the functions of a project use much the same ones.

A tree takes 50 times as much memory as its text.
"""
_NOT_RUN = (
    "TYPE_CHECKING",
    "typing.TYPE_CHECKING",
    "__name__ == '__main__'",
)  # not run when a module is imported

_Place = tuple[str, tuple[str, ...]]
"""A module and a path of attributes in it; an empty path is the module itself."""


def code_digest(field: str, path: str) -> str:
    """SHA-256, in hex, of a function's import path, its code and all project code that it uses.

    Comments, docstrings, layout and the order of definitions do not count. A name that is neither a function
    nor a class, such as a constant, counts by the statements that make it.

    Args:
        field: field that names the function, for the message.
        path: ``module:function``.

    Raises:
        InvalidInput: there is no such function, or the text of a module cannot be read.
    """
    import_function(field, path)
    module, _, name = path.partition(":")
    return sha256(json.dumps([path, sorted(_Reached(module, name).code.items())]).encode()).hexdigest()


class _Reached:
    """The code that a function reaches: ``code`` has the statements of each name, by ``module:name``.

    The statements are empty for names outside of the project.
    """

    def __init__(self, module: str, name: str) -> None:
        self.code: dict[str, list[str]] = {}
        self._modules: dict[str, _Module | None] = {}
        start = self._module(module)
        places: set[_Place] = set()
        pending: list[_Place] = [(module, (name,))]
        if start is not None and not start.binds(name):
            # A name that no statement makes counts as its whole module.
            pending = [(module, ())]
        while pending:
            place = pending.pop()
            if place not in places:
                places.add(place)
                pending += self._places_from(*place)

    def _places_from(self, name: str, attributes: tuple[str, ...]) -> Iterator[_Place]:
        """Record the code at a place, and yield the places that it uses."""
        module = self._module(name)
        if module is None:
            self.code[".".join([name, *attributes])] = []
        elif not attributes:
            self.code[name] = [ast.unparse(module.tree)]
            yield from module.references(module.tree)
        elif attributes[0] in module.statements:
            yield from self._places_of(module, attributes)
        elif self._module(f"{name}.{attributes[0]}") is not None:
            yield f"{name}.{attributes[0]}", attributes[1:]
        else:
            yield from ((other, attributes) for other in module.stars if self._module(other) is not None)

    def _places_of(self, module: "_Module", attributes: tuple[str, ...]) -> Iterator[_Place]:
        name, *more = attributes
        code = [
            statement
            for statement in module.statements[name]
            if not isinstance(statement, ast.Import | ast.ImportFrom)
        ]
        if code:
            self.code[f"{module.name}:{name}"] = [ast.unparse(statement) for statement in code]
        for statement in module.statements[name]:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                other, path = module.places_imported(statement)[name]
                submodule = ".".join([other, *path])
                if path and other == module.name and self._module(submodule) is not None:
                    yield submodule, tuple(more)  # The package's __init__ imports this module.
                else:
                    yield other, (*path, *more)
            else:
                yield from module.references(statement)

    def _module(self, name: str) -> "_Module | None":
        """A module of the project; None for any other one, and for one that Python cannot parse."""
        if name not in self._modules:
            self._modules[name] = None
            own = own_module(name)
            if own is not None:
                with suppress(SyntaxError):
                    self._modules[name] = _module_of(name, own.package, own.text)
        return self._modules[name]


class _Module:
    """A module as text.

    Attributes:
        tree: its tree, without docstrings.
        statements: the statements that make or change each name, in order.
        stars: modules from which it imports everything.
    """

    def __init__(self, name: str, package: str, text: str) -> None:
        self.name = name
        self._package = package
        self._text = text
        self.tree = _without_docstrings(parse_python(text))
        self.statements: dict[str, list[ast.stmt]] = defaultdict(list)
        self.stars: list[str] = []
        for statement in self.tree.body:
            if isinstance(statement, ast.If) and ast.unparse(statement.test) in _NOT_RUN:
                for otherwise in statement.orelse:
                    for bound in sorted(_names_bound(otherwise)):
                        self.statements[bound].append(otherwise)
                continue
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                self.stars.append(self._base(statement))
                continue
            for bound in sorted(_names_bound(statement)):
                self.statements[bound].append(statement)

    def binds(self, name: str) -> bool:
        return name in self.statements or bool(self.stars)

    def places_imported(self, statement: ast.Import | ast.ImportFrom) -> dict[str, _Place]:
        """Where the names come from that an import makes."""
        if isinstance(statement, ast.ImportFrom):
            return {
                alias.asname or alias.name: (self._base(statement), (alias.name,))
                for alias in statement.names
            }
        places: dict[str, _Place] = {}
        for alias in statement.names:
            if alias.asname:
                places[alias.asname] = (alias.name, ())
            else:
                package = alias.name.partition(".")[0]
                places[package] = (package, ())
        return places

    def references(self, node: ast.stmt | ast.Module) -> Iterator[_Place]:
        """The places that a statement uses, by itself or within its functions."""
        inner: dict[str, _Place] = {}
        for statement in ast.walk(node):
            if isinstance(statement, ast.Import | ast.ImportFrom) and statement is not node:
                inner |= self.places_imported(statement)
        reached = self._globals_of(node)
        for name, *attributes in _dotted_names(node):
            if name in inner:
                module, attributes_before = inner[name]
                yield module, (*attributes_before, *attributes)
            elif (name in self.statements or self.stars) and (reached is None or name in reached):
                yield self.name, (name, *attributes)

    def _globals_of(self, node: ast.stmt | ast.Module) -> set[str] | None:
        """The module-level names that a function or class uses; None if it may use any."""
        if not isinstance(node, _SCOPES):
            return None
        table = next(
            (
                table
                for table in self._scopes
                if (table.get_name(), table.get_lineno()) == (node.name, node.lineno)
            ),
            None,
        )
        if table is None:
            return None
        # These expressions are evaluated where the function or class is defined.
        evaluated: list[ast.expr | None] = [*node.decorator_list]
        if isinstance(node, ast.ClassDef):
            evaluated += [*node.bases, *(keyword.value for keyword in node.keywords)]
        else:
            evaluated += [*node.args.defaults, *node.args.kw_defaults]
        names = {
            name
            for expression in evaluated
            if expression is not None
            for name, *_ in _dotted_names(expression)
        }
        return names | _globals_in(table)

    @cached_property
    def _scopes(self) -> list[symtable.SymbolTable]:
        return symtable.symtable(self._text, self.name, "exec").get_children()

    def _base(self, statement: ast.ImportFrom) -> str:
        """The module that names are imported from."""
        if not statement.level:
            return statement.module or ""
        packages = self._package.split(".")
        parts = packages[: len(packages) - statement.level + 1]
        if statement.module:
            parts.append(statement.module)
        return ".".join(parts)


@lru_cache(_MAX_MODULES)
def _module_of(name: str, package: str, text: str) -> _Module:
    return _Module(name, package, text)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, (*_SCOPES, ast.Module)) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])
    return tree


def _globals_in(table: symtable.SymbolTable) -> set[str]:
    """The module-level names that a scope and its inner scopes use."""
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return names.union(*map(_globals_in, table.get_children()))


def _names_bound(node: ast.AST) -> Iterator[str]:
    """The module-level names that a statement makes or changes, also by an item, an attribute or a method."""
    if isinstance(node, _SCOPES):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        yield from _root(node)
    elif (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
    ):
        yield from _root(node.value.func)
    if not isinstance(node, _INNER_SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _names_bound(child)


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _dotted_names(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """The names within a node, each with the attributes that follow it: ``("helpers", "scale")``."""
    attributes: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute):
        attributes.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield inner.id, *reversed(attributes)
        return
    for child in ast.iter_child_nodes(inner):
        yield from _dotted_names(child)
