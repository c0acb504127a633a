"""``wandb.save``: files that are kept with a run."""

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import AlreadyExists, HalvingError
from halving.wandb.errors.term import termlog, termwarn

if TYPE_CHECKING:
    from halving.wandb.run import Run

_POLICIES = ("live", "end", "now")
_MAX_COPIES = 1_000


def save_files(run: "Run", glob_str: Any, base_path: Any = None, policy: str = "live") -> list[str]:
    """Keep files as artifacts of the run, by their paths below ``base_path``.

    Args:
        glob_str: a path or a pattern.
        base_path: default: the working directory; for an absolute pattern, the folder above that of the file.
        policy: ``now`` stores them at once. ``live`` and ``end`` store them when the run ends, as they are
            then, also files that match the pattern only by then.

    Returns:
        The files' paths.

    Raises:
        ValueError: another policy, or a pattern that leads out of ``base_path``.
    """
    if glob_str is None:
        termwarn("wandb.save() without files does nothing: name them")
        return []
    pattern = os.fsdecode(glob_str)
    if policy not in _POLICIES:
        raise ValueError(f'policy {policy!r} is not accepted: Only "live", "end" and "now" are supported')
    if pattern.startswith(("gs://", "s3://")):
        termlog(f"{pattern} is a cloud storage url, can't save file to W&B.")
        return []
    whole = _absolute(pattern)
    base = _default_base(pattern, whole)
    if base_path is not None:
        base = Path(_absolute(base_path))
    if not Path(whole).is_relative_to(base) or Path(whole) == base:
        raise ValueError(f"path {pattern!r} is not accepted: it is not below base_path {str(base)!r}")
    paths = _matches(whole)
    if run._run is not None:
        if policy == "now":
            _store(run, paths, base)
        else:
            run._run.before_end(lambda: _store(run, _matches(whole), base))
    return [str(path) for path in paths]


def _absolute(path: Any) -> str:
    """The path without . and .., whose links stay what they are."""
    return os.path.normpath(Path(path).absolute())


def _default_base(pattern: str, whole: str) -> Path:
    if not Path(pattern).is_absolute():
        return Path.cwd()
    return Path(whole).parent.parent


def _matches(pattern: str) -> list[Path]:
    paths = [Path(path) for path in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207
    if not paths and Path(pattern).exists():
        paths = [Path(pattern)]
    return [path for path in paths if path.is_file()]


def _store(run: "Run", paths: list[Path], base: Path) -> None:
    for path in paths:
        try:
            _store_file(run, path, path.relative_to(base).as_posix())
        except (HalvingError, OSError) as error:
            termwarn(f"{path} is not saved: {error}")


def _store_file(run: "Run", path: Path, name: str) -> None:
    """Store a file; one that was saved before with other content is kept, and this one is ``NAME@2``."""
    if run._run is None:
        return
    for number in range(1, _MAX_COPIES):
        try:
            run._run.log_artifact(path, name if number == 1 else f"{name}@{number}")
            return
        except AlreadyExists:
            continue
    termwarn(f"{path} is not saved: it was saved {_MAX_COPIES - 1} times with other content")
