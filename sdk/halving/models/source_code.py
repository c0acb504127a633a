"""Collects the code that a predictor needs: its own modules as text, and pinned packages that it imports."""

import ast
import importlib.metadata
import json
import os
import pkgutil
import re
import sys
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from halving.errors import InvalidInput
from halving.python_source import parse_python
from halving.records.redaction import lines_with_secrets
from halving.trial.import_string import add_working_folder

_ALWAYS = ("numpy", "pyarrow")  # the SDK needs these itself
_SDK = "halving"
_MAX_TEXTS = 500
"""Modules whose imports are remembered; they are read for each model and snapshot, and seldom change."""


@dataclass(frozen=True)
class Code:
    """The code that a function needs.

    Attributes:
        files: the text of each module by its path below the folder that Python imports it from.
        packages: the version of each distribution that is installed; None if it is not known.
    """

    files: dict[str, str]
    packages: dict[str, str | None]

    def requirements(self, recorded: Mapping[str, str]) -> list[str]:
        """Pin each package as ``name==version``.

        A version is the one that a run has recorded, or else the one that was installed.
        """
        versions = {_normalize(name): version for name, version in recorded.items()}
        pinned = {
            name: versions.get(_normalize(name)) or installed for name, installed in self.packages.items()
        }
        # A local version (2.13.0+cpu) is not on the index: which build it is depends on the machine.
        return [f"{name}=={version.partition('+')[0]}" for name, version in sorted(pinned.items()) if version]


@dataclass(frozen=True)
class OwnModule:
    """A module as text, and the package that its relative imports start from.

    For a package that is the package itself.
    """

    text: str
    package: str


def own_module(name: str) -> OwnModule | None:
    """Read a module of the project's own; None for one that is installed, Python's, this SDK's or missing.

    Nothing is imported for it. A package without a file of its own has an empty text.

    Raises:
        InvalidInput: its file cannot be read as text; the message names it.
    """
    add_working_folder()
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == _SDK or _installed_in(name):
        return None
    spec = _spec(name)
    if spec is not None and spec.origin is None and spec.submodule_search_locations is not None:
        return OwnModule("", name)
    return _module(name)


def code_of(*functions: str) -> Code:
    """Collect the modules that functions, ``module:function``, are in and import, except installed ones.

    Python's own are left out, too. Imports are read from the text, so those inside of functions count, and
    nothing is executed. Files that are no modules (data beside the code) are not collected.

    Raises:
        InvalidInput: the file of a module cannot be read as text; the message names it.
    """
    add_working_folder()
    files: dict[str, str] = {}
    packages: set[str] = set()
    pending = [function.partition(":")[0] for function in functions]
    visited = set[str]()
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        parent, _, _ = name.rpartition(".")
        if parent:
            pending.append(parent)
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == _SDK:
            continue
        if distribution := _installed_in(name):
            packages.add(distribution)
            continue
        module = _module(name)
        if module is None:
            continue
        suffix = ".py"
        if module.package == name:
            suffix = "/__init__.py"
        files[name.replace(".", "/") + suffix] = module.text
        pending += _imports(module.text, module.package)
    return Code(
        dict(sorted(files.items())),
        {name: _installed_version(name) for name in sorted({*packages, *_ALWAYS})},
    )


def warn_of_secrets(model: str, files: Mapping[str, str], stacklevel: int) -> None:
    """Warn of code that seems to hold secrets, which everyone with the store or an export can read.

    The code is kept as it is.
    """
    lines = [
        f"{path}:{line}"
        for path, text in files.items()
        for line in lines_with_secrets(path, text, os.environ)
    ]
    if lines:
        places = ", ".join(lines[:5])
        if len(lines) > 5:
            places += f" and {len(lines) - 5} more lines"
        warnings.warn(
            f"the code of model {model} holds what looks like a secret in {places}; it is kept in the store "
            "and in every export: if it is one, change it, and read it from the environment",
            stacklevel=stacklevel + 1,
        )


def _module(name: str) -> OwnModule | None:
    """Read a Python module that has a file, wherever that is."""
    spec = _spec(name)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    package = name
    if spec.submodule_search_locations is None:
        package = name.rpartition(".")[0]
    return OwnModule(_source(Path(spec.origin)), package)


@lru_cache(_MAX_TEXTS)
def _imports(text: str, package: str) -> tuple[str, ...]:
    """The names of all modules that a text may import; for ``from a import b`` both ``a`` and ``a.b``."""
    return tuple(_read_imports(text, package))


def _read_imports(text: str, package: str) -> Iterator[str]:
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The module cannot be imported, and perhaps it never is.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                if base:
                    above.append(base)
                base = ".".join(above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _spec(name: str) -> ModuleSpec | None:
    """Find a module; None if it is none, as ``b`` of ``from a import b`` may be.

    :func:`importlib.util.find_spec` would import the packages that contain it, and that could do anything.
    """
    package, _, _ = name.rpartition(".")
    if not package or name in sys.modules:
        try:
            return find_spec(name)
        except (ImportError, ValueError):
            return None
    above = _spec(package)
    portions = list[str]()
    for location in (above and above.submodule_search_locations) or ():
        finder = pkgutil.get_importer(location)
        if finder is None:
            continue
        spec = finder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        portions += (spec and spec.submodule_search_locations) or ()
    if not portions:
        return None
    namespace = ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def _source(file: Path) -> str:
    """Read a file's text, in the encoding that it declares."""
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except (OSError, SyntaxError, UnicodeError) as error:
        raise InvalidInput(
            f"the code that a model, a snapshot or a feature view stands on is kept, and {file} cannot be "
            f"read ({error}): write it in UTF-8 or the encoding that it declares, and let this process read "
            "it"
        ) from None


def _installed_in(name: str) -> str | None:
    """Find the distribution whose list of files has a module; None for a module of a project's own.

    It may be installed anywhere. What pip installed from a folder of this machine, editable or not, is a
    project's own, because no index has it. Nothing is imported.
    """
    top = name.partition(".")[0]
    spec = _spec(top)
    candidates = _by_module().get(top, [])
    if spec is None or not (candidates or spec.has_location):
        return None
    if not spec.has_location or spec.origin is None:  # a namespace, which several distributions may share
        distribution = next((candidate for candidate in candidates if _has(_files(candidate), name)), None)
        if distribution is None or _is_of_folder(distribution):
            return None
        return distribution
    origin = Path(spec.origin).resolve()
    for candidate in candidates:
        root = Path(str(importlib.metadata.distribution(candidate).locate_file(""))).resolve()
        if origin.is_relative_to(root) and origin.relative_to(root).as_posix() in _files(candidate):
            if _is_of_folder(candidate):
                return None
            return candidate
    if {"site-packages", "dist-packages"} & set(origin.parts):  # installed without a list of its files
        return [*candidates, top][0]
    return None


def _is_of_folder(name: str) -> bool:
    """Whether a distribution was installed from a folder of sources, as by ``pip install .``.

    pip records that (PEP 610). Packages of conda look the same, but their folder is on the machine that built
    them. Packages with compiled modules are excluded, because they cannot be collected as text.
    """
    distribution = importlib.metadata.distribution(name)
    origin = distribution.read_text("direct_url.json")
    if origin is None or (distribution.read_text("INSTALLER") or "").strip() == "conda":
        return False
    try:
        is_folder = "dir_info" in json.loads(origin)
    except ValueError:  # it is damaged
        return False
    return is_folder and not any(file.endswith((".so", ".pyd")) for file in _files(name))


def _has(files: frozenset[str], name: str) -> bool:
    """Whether the module of this name, or one that it is a part of, is among the files."""
    paths = [name.rsplit(".", cut)[0].replace(".", "/") for cut in range(name.count(".") + 1)]
    return any(file.startswith((f"{path}.", f"{path}/__init__.")) for path in paths for file in files)


@cache
def _by_module() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


@cache
def _files(distribution: str) -> frozenset[str]:
    metadata = importlib.metadata.distribution(distribution)
    # A distribution without a RECORD is a checkout's egg-info, which lists the sources.
    if not metadata.read_text("RECORD"):
        return frozenset()
    return frozenset(file.as_posix() for file in metadata.files or [])


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
