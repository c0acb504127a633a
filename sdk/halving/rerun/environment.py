"""The interpreter of a rerun: this process's own, or that of an environment of the recorded packages."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from halving.errors import InvalidInput, NotFound
from halving.machine.temporary_folders import scratch_folder
from halving.records import provenance
from halving.records.provenance import CHECKOUT
from halving.rerun.execution import STDERR
from halving.rerun.plan import Plan

_ASK = "import json; from halving.records.provenance import environment; print(json.dumps(environment()))"
_NO_SOURCES = (".venv", "venv", ".tox", ".nox", "node_modules", "__pycache__")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")


def environment_of(python: str, search: str = "") -> dict[str, Any]:
    """Call :func:`halving.records.provenance.environment` in another interpreter.

    Args:
        search: its ``PYTHONPATH``.

    Raises:
        InvalidInput: it has no halving, or does not run.
    """
    if python == sys.executable:
        return provenance.environment()
    variables = {**os.environ, "PYTHONPATH": search}
    done = subprocess.run(
        [python, "-P", "-c", _ASK], capture_output=True, text=True, check=False, env=variables
    )
    if done.returncode:
        raise InvalidInput(
            f"{python} is not accepted: it cannot import halving: {done.stderr.strip().splitlines()[-1:]}"
        )
    environment: dict[str, Any] = json.loads(done.stdout)
    return environment


class Environments:
    """Virtual environments of recorded packages, each built once for all plans with the same packages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[str, str] = {}

    def python_of(self, plan: Plan, code: Path, tell: Callable[[str], None]) -> str:
        """The interpreter of the plan's environment, which is built at first use.

        Args:
            code: its checkout, for packages that were installed from there.

        Raises:
            NotFound: as :func:`build_environment`.
        """
        packages = plan.environment.get("packages") or {}
        origins = plan.environment.get("packages_from") or {}
        code_version = None
        if any(origin.startswith(CHECKOUT) for origin in origins.values()):
            code_version = [plan.commit, plan.patch]
        key = json.dumps([plan.python, packages, origins, code_version], sort_keys=True)
        if key not in self._built:
            tell(f"building a virtual environment of {len(packages)} recorded packages")
            self._built[key] = build_environment(plan, code, self._folder / f"environment-{len(self._built)}")
        return self._built[key]


@contextmanager
def environments() -> Iterator[Environments]:
    """Environments that are deleted when the block ends."""
    with scratch_folder("environments") as folder:
        yield Environments(folder.resolve())


def build_environment(plan: Plan, code: Path, folder: Path) -> str:
    """Create a virtual environment of the recorded Python and packages, and return its interpreter.

    A package that was installed from a folder, of the checkout (then that in ``code``) or another, is built
    from a copy of it, because a build leaves files behind. Any other is installed from where pip finds it by
    its settings (``PIP_INDEX_URL``, ``PIP_EXTRA_INDEX_URL``, ``PIP_FIND_LINKS``…), in exactly its version,
    without dependencies of its own. pip and setuptools stay only where they were recorded.

    Raises:
        NotFound: the recorded Python is not on this machine, or a package is not available any more; the
            message names it.
    """
    python = _interpreter(plan)
    built = str(folder / "bin" / "python")
    venv = [python, "-m", "venv", str(folder)]
    pip = [built, "-m", "pip"]
    # Installing a pip in every environment takes longer than the rest, so this interpreter's is used if it
    # can.
    is_borrowed = python == sys.executable and _has_pip(python)
    if is_borrowed:
        venv.insert(3, "--without-pip")
        pip = [python, "-m", "pip", "--python", built]
    _run(venv, f"the virtual environment of {plan.name}")
    wanted = list(_copy_sources(requirements(plan, code), code, folder / "sources"))
    listed = folder / "recorded-packages.txt"
    listed.write_text("".join(f"{line}\n" for line in wanted))
    quiet = ["--quiet", "--disable-pip-version-check"]
    purpose = f"the recorded packages of {plan.name} ({listed})"
    _run([*pip, "install", *quiet, "--no-input", "--no-deps", "-r", str(listed)], purpose)
    shutil.rmtree(folder / "sources", ignore_errors=True)
    recorded = {name.lower() for name in plan.environment.get("packages") or {}}
    added = sorted({"pip", "setuptools"} - recorded)
    if added and not is_borrowed:
        _run([*pip, "uninstall", *quiet, "--yes", *added], f"an environment without {added}")
    return built


def _copy_sources(lines: Iterable[str], code: Path, sources: Path) -> Iterator[str]:
    """Requirements with each folder replaced by a copy.

    The checkout is copied as a whole, because a package may take its version from git.
    """
    for number, line in enumerate(lines):
        path = Path(line)
        if not path.is_absolute() or not path.is_dir():
            yield line
            continue
        top = path
        copy = sources / str(number)
        if path.is_relative_to(code):
            top = code
            copy = sources / "checkout"
        if not copy.exists():
            shutil.copytree(top, copy, symlinks=True, ignore=shutil.ignore_patterns(*_NO_SOURCES))
        yield str(copy / path.relative_to(top))


def requirements(plan: Plan, code: Path) -> list[str]:
    """pip's requirement for each recorded package.

    Raises:
        NotFound: one came from a folder or file that is gone.
    """
    origins = plan.environment.get("packages_from") or {}
    packages = plan.environment.get("packages") or {}
    return [_requirement(name, version, origins.get(name), plan, code) for name, version in packages.items()]


def _requirement(name: str, version: str, origin: str | None, plan: Plan, code: Path) -> str:
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(version):
        raise InvalidInput(
            f"the package {name!r:.80} {version!r:.80} in the record of {plan.name} is not accepted: that "
            "is no package's name"
        )
    if origin is None:
        return f"{name}=={version}"
    if origin.startswith(CHECKOUT):
        return str(code / origin.removeprefix(CHECKOUT))
    if not origin.startswith("file:"):
        return f"{name} @ {origin}"
    path = Path(unquote(urlparse(origin).path))
    if not path.exists():
        raise NotFound(
            f"the package {name} {version} of run {plan.name} is gone: it was installed from {path}"
        )
    return str(path)


def _interpreter(plan: Plan) -> str:
    """A Python of the recorded minor version."""
    wanted = plan.python
    if wanted == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    python = shutil.which(f"python{wanted}")
    # A name on the PATH may be a version manager's that lacks this version.
    if python is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        raise NotFound(
            f"Python {wanted} of run {plan.name} is not on this machine: install it, so that "
            f"python{wanted} is on the PATH"
        )
    return python


def _has_pip(python: str) -> bool:
    """Whether an interpreter has a pip that installs into other environments (22.3 and newer)."""
    done = subprocess.run(
        [python, "-m", "pip", "--version"],
        capture_output=True,
        text=True,
        check=False,
        env=_without_search_path(),
    )
    version = re.match(r"pip (\d+)\.(\d+)", done.stdout)
    return done.returncode == 0 and version is not None and (int(version[1]), int(version[2])) >= (22, 3)


def _run(command: list[str], purpose: str) -> None:
    done = subprocess.run(
        command, stdout=STDERR, stderr=subprocess.PIPE, text=True, check=False, env=_without_search_path()
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        errors = errors or done.stderr.strip().splitlines()[-3:]
        raise NotFound(f"{purpose} cannot be brought back: {' '.join(errors)}")


def _without_search_path() -> dict[str, str]:
    """This process's variables without ``PYTHONPATH``, which may lead to another environment's pip."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
