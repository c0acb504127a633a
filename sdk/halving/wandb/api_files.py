"""Files of a run as ``wandb.Api`` gives them."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from halving.wandb.errors import CommError, NotSupported
from halving.wandb.recorded_runs import RecordedRun, RecordedRuns, read_blob


class File:
    """A file of a run."""

    def __init__(self, runs: RecordedRuns, run: RecordedRun, record: Mapping[str, Any]) -> None:
        self._runs = runs
        self._run = run
        self._record = record

    def __repr__(self) -> str:
        return f"<File {self.name} ({self.size} bytes)>"

    @property
    def name(self) -> str:
        return str(self._record["name"])

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self._record.get("bytes") or self._record.get("size") or 0)

    @property
    def digest(self) -> str:
        """SHA-256 of its content."""
        return str(self._record["digest"])

    def download(
        self, root: str | Path = ".", replace: bool = False, exist_ok: bool = False, api: Any = None
    ) -> IO[str]:
        """Copy the file into a folder, and return it opened.

        Raises:
            ValueError: it is there already, and neither ``replace`` nor ``exist_ok`` is set.
            CommError: its name leads out of the folder.
        """
        folder = Path(root).resolve()
        target = (folder / self.name).resolve()
        if not target.is_relative_to(folder):
            raise CommError(f"file {self.name!r} is not downloaded: its name leads out of {folder}")
        if target.exists() and not replace:
            if exist_ok:
                return target.open()
            raise ValueError(
                "File already exists, pass replace=True to overwrite or exist_ok=True to leave it"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        with part.open("wb") as file:
            for content in read_blob(self._runs.blobs(self._run.project, self._run.id), self.digest):
                file.write(content)
        part.replace(target)
        return target.open()

    def delete(self) -> None:
        """Refuse.

        Raises:
            NotSupported: always.
        """
        raise refusal("file.delete()")


def is_manifest(name: str) -> bool:
    """Whether a file of a run is the list of a logged artifact's files: ``NAME:v3.json``."""
    base = name.removesuffix(".json")
    _, mark, version = base.rpartition(":v")
    return base != name and bool(mark) and version.isdigit() and "/" not in base


def is_of_artifact(name: str) -> bool:
    """Whether a file of a run belongs to an artifact that it has logged or used."""
    first, slash, _ = name.partition("/")
    _, mark, version = first.rpartition(":v")
    return is_manifest(name) or (bool(slash) and (first == "used" or (bool(mark) and version.isdigit())))


def refusal(call: str) -> NotSupported:
    """The error of a call that would change what is recorded."""
    return NotSupported(
        f"{call} is not there in Halving: wandb.Api reads; halving.tag_run changes tags, and "
        "wandb.init(id=…, resume='must') goes on with a run"
    )
