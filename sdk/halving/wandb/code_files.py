"""Keeps the files of a script's code with its run."""

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import HalvingError
from halving.wandb.errors.term import termwarn

if TYPE_CHECKING:
    from halving.wandb.run import Run

_MAX_FILES = 5_000
_LEFT_OUT = frozenset({".git", "__pycache__", ".venv", "node_modules", "wandb", ".halving"})


def log_code(run: "Run", root: str | None, include: Any, exclude: Any) -> None:
    """Attach the code's files, as ``code/PATH``; one that the run has already with other content is left out.

    Args:
        root: the folder (default: the working directory).
        include, exclude: functions of a path, or of a path and the root, that choose files.
    """
    if run._run is None:
        return
    top = Path(root or ".").resolve()
    count = 0
    for path in _files(top):
        if not _choose(include or _is_python, path, top):
            continue
        if exclude is not None and _choose(exclude, path, top):
            continue
        count += 1
        if count > _MAX_FILES:
            termwarn(f"log_code keeps the first {_MAX_FILES} files of {top}: choose fewer with include_fn")
            return
        try:
            run._run.log_artifact(path, f"code/{path.relative_to(top).as_posix()}")
        except HalvingError as error:
            termwarn(f"log_code leaves {path} out: {error}", repeat=False)


def _files(top: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(top):
        names[:] = sorted(name for name in names if name not in _LEFT_OUT)
        yield from (Path(folder) / name for name in sorted(files))


def _is_python(path: str) -> bool:
    return path.endswith(".py")


def _choose(choose: Callable[..., Any], path: Path, top: Path) -> bool:
    if len(inspect.signature(choose).parameters) > 1:
        return bool(choose(str(path), str(top)))
    return bool(choose(str(path)))
