"""Makes one classic script of the page's modules, because a browser imports none for a file on disk.

Each module becomes a function that is called once and returns what the module exports, in the order in which
they import each other. It is the same text for the same modules, so its hash can stand in a policy.
"""

import posixpath
import re
from functools import lru_cache
from pathlib import Path

STATIC = Path(__file__).parent.parent / "static"

_VENDORED = {
    "preact": "vendor/preact.js",
    "preact/hooks": "vendor/preact-hooks.js",
    "htm": "vendor/htm.js",
    "@preact/signals": "vendor/signals.js",
    "@preact/signals-core": "vendor/signals-core.js",
    "uplot": "vendor/uplot.js",
}
# Statements stand at the beginning of a line, or in a minified library after a semicolon or a brace.
_START = r"(?:(?<=[;}])|^)"
_IMPORT = re.compile(rf"""{_START}import\s*(?:([^"';()]+?)\s*from\s*)?["']([^"']+)["'];?""", re.M)
_EXPORT_FROM = re.compile(rf"""{_START}export\s*\{{([^}}]*)\}}\s*from\s*["']([^"']+)["'];?""", re.M)
_EXPORT_LIST = re.compile(rf"{_START}export\s*\{{([^}}]*)\}};?", re.M)
_EXPORT_DEFAULT = re.compile(rf"{_START}export default (?=(?:async )?function\s+(\w+)|class\s+(\w+))", re.M)
_EXPORT_VALUE = re.compile(rf"{_START}export default ", re.M)
_EXPORT_NAMED = re.compile(rf"{_START}export (?=(?:async )?(?:function\*?|class|const)\s+([\w$]+))", re.M)
_LEFT = re.compile(rf"{_START}(?:export|import)\b(?!\s*\()[^\n]{{0,60}}", re.M)
_SOURCE_MAP = re.compile(r"//# sourceMappingURL=\S+")
_DEFAULT = "_default"


@lru_cache(maxsize=8)
def bundle(entry: str, static: Path = STATIC) -> str:
    """The script of a module of the page and of all that it imports.

    Args:
        entry: its path within ``static``; it is called at the end.

    Raises:
        ValueError: modules import each other in a circle, or one is written in a form that this cannot take
            apart; both are mistakes in the page's source.
    """
    modules: dict[str, str] = {}
    _add(entry, static, modules, ())
    body = "\n".join(modules.values())
    script = f'(() => {{\n"use strict";\n{body}\n}})();\n'
    for ending in ("</script", "<!--"):
        if ending in script.lower():
            raise ValueError(f"a module of {entry} has {ending!r} in it, which would end the page's script")
    return script


def _add(name: str, static: Path, modules: dict[str, str], above: tuple[str, ...]) -> None:
    if name in modules:
        return
    if name in above:
        raise ValueError(f"modules import each other in a circle: {' → '.join((*above, name))}")
    source = (static / name).read_text()
    for match in (*_IMPORT.finditer(source), *_EXPORT_FROM.finditer(source)):
        _add(_resolve(name, match[2]), static, modules, (*above, name))
    modules[name] = _as_function(name, source)


def _as_function(name: str, source: str) -> str:
    exports: dict[str, str] = {}

    def reexport(match: re.Match[str]) -> str:
        module = _variable(_resolve(name, match[2]))
        for local, exported in _pairs(match[1]):
            exports[exported] = f"{module}.{local}"
        return ""

    def listed(match: re.Match[str]) -> str:
        exports.update((exported, local) for local, exported in _pairs(match[1]))
        return ""

    def default(match: re.Match[str]) -> str:
        exports["default"] = match[1] or match[2]
        return ""

    def default_value(_: re.Match[str]) -> str:
        exports["default"] = _DEFAULT
        return f"const {_DEFAULT} = "

    def named(match: re.Match[str]) -> str:
        exports[match[1]] = match[1]
        return ""

    code = _SOURCE_MAP.sub("", source)
    code = _IMPORT.sub(lambda match: _imported(name, match), code)
    code = _EXPORT_FROM.sub(reexport, code)
    code = _EXPORT_LIST.sub(listed, code)
    code = _EXPORT_DEFAULT.sub(default, code)
    code = _EXPORT_VALUE.sub(default_value, code)
    # A library exports in one list at its end; declarations that look like exports stand in its comments.
    is_library = name.startswith("vendor/")
    if not is_library:
        code = _EXPORT_NAMED.sub(named, code)
    left = _LEFT.search(code)
    if left and not is_library:
        raise ValueError(
            f"{name} cannot be bundled: {left[0]!r} is no form of import or export that is known"
        )
    returned = ", ".join(f'"{exported}": {local}' for exported, local in exports.items())
    return f"const {_variable(name)} = (() => {{\n{code.strip()}\nreturn {{{returned}}};\n}})();"


def _imported(name: str, match: re.Match[str]) -> str:
    """An import as constants; the module that it names was called before."""
    module = _variable(_resolve(name, match[2]))
    clause = (match[1] or "").strip()
    if not clause:
        return ""
    statements = []
    before, brace, inside = clause.partition("{")
    default = before.strip().strip(",").strip()
    if default.startswith("*"):
        statements.append(f"const {default.split()[-1]} = {module};")
    elif default:
        statements.append(f"const {default} = {module}.default;")
    if brace:
        names = [f"{exported}: {local}" for exported, local in _pairs(inside.rstrip().rstrip("}"))]
        statements.append(f"const {{{', '.join(names)}}} = {module};")
    return " ".join(statements)


def _pairs(names: str) -> list[tuple[str, str]]:
    """The two names of each part: ``a, b as c`` is ``(a, a), (b, c)``."""
    pairs = []
    for part in names.split(","):
        words = part.split()
        if words:
            pairs.append((words[0], words[-1]))
    return pairs


def _resolve(name: str, target: str) -> str:
    if target in _VENDORED:
        return _VENDORED[target]
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def _variable(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))
