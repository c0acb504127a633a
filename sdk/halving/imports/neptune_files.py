"""The files of a run that neptune-exporter has downloaded.

Rows have their paths, which must lead into the exporter's folder of files.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

from halving.errors import InvalidInput
from halving.imports.foreign_run import Artifact, Skipped
from halving.imports.neptune_parts import STEP_UNIT
from halving.imports.reading import LEFT_BEHIND, files_below, is_left_behind, local_file
from halving.ingest.media import Image

FILE_TYPES = ("file", "file_series", "file_set", "artifact")
_GONE = "files that are not there (--files FOLDER says where neptune-exporter put them)"
_OUTSIDE = "files whose path leads out of the folder of files"


class Files:
    """Finds the files that the exporter has downloaded, by the paths in its rows."""

    def __init__(self, folders: list[Path], skipped: Skipped) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._skipped = skipped

    def find(self, name: str) -> Path | None:
        """Find a file or a folder; None if it is not there.

        Raises:
            InvalidInput: the name leads out of the folder of files, as a forged one does.
        """
        leads_out = False
        for folder in self._folders:
            try:
                path = (folder / name).resolve()
            except (OSError, RuntimeError, ValueError):  # a null character, a loop of links
                leads_out = True
                continue
            if path == folder or not path.is_relative_to(folder):
                leads_out = True
            elif path.exists():
                return path
        if leads_out:
            raise InvalidInput(f"path {name!r:.200} is not accepted: give one inside of the folder of files")
        return None

    def image(self, name: str) -> Image | None:
        """Read a PNG or JPEG; None if the file is something else, is not there or is not accepted."""
        try:
            path = self.find(name)
            if path is not None and path.is_file():
                return Image(path)
        except InvalidInput:
            pass
        return None

    def is_absent(self, name: str) -> bool:
        """Whether a file is not there, and may come with another ``--files``."""
        try:
            return self.find(name) is None
        except InvalidInput:
            return False

    def artifacts(self, name: str, kind: str, path: str, step: int | None) -> Iterator[Artifact]:
        """The artifacts that an attribute of the run becomes: a file, or the files of a folder.

        An image of a series becomes a medium instead.

        Args:
            name: the attribute's name.
            kind: the attribute's type.
            path: the file's path in the row.
            step: the step in a series, in millionths.
        """
        try:
            file = self.find(path)
        except InvalidInput:
            self._skipped.add(_OUTSIDE)
            return
        if file is None:
            self._skipped.add(_GONE)
        elif file.is_dir():
            yield from self._tree(name, path, file)
        elif kind != "file_series":
            if kind == "artifact":
                self._skipped.add("artifacts that Neptune only tracks (the lists of their files are taken)")
            yield _artifact(_with_suffix(name, file), file)
        elif self.image(path) is None:
            yield _artifact(_with_suffix(f"{name}/{_step_text(step)}", file), file)

    def _tree(self, name: str, path: str, folder: Path) -> Iterator[Artifact]:
        for member in files_below(folder, left_behind=True):
            inner = member.relative_to(folder).as_posix()
            if is_left_behind(inner):
                self._skipped.add(LEFT_BEHIND)
                continue
            try:
                file = self.find(f"{path}/{inner}")
            except InvalidInput:
                self._skipped.add(_OUTSIDE)
                continue
            if file is None:
                self._skipped.add(_GONE)
            else:
                yield _artifact(f"{name}/{inner}", file)


def _artifact(name: str, path: Path) -> Artifact:
    return Artifact(name, partial(local_file, path), path.stat().st_size)


def _with_suffix(name: str, path: Path) -> str:
    if PurePosixPath(name).suffix == path.suffix:
        return name
    return f"{name}{path.suffix}"


def _step_text(step: int | None) -> str:
    """Format a step as Neptune shows it: 3, 0.5."""
    if step is None:
        return "file"
    whole, part = divmod(abs(step), STEP_UNIT)
    digits = f"{whole}.{part:06d}".rstrip("0").rstrip(".")
    if step < 0:
        return f"-{digits}"
    return digits
