"""Where logs of W&B's appear: a folder that is looked at again and again, at little cost.

Only folders that have changed are listed, and a run's folder only until its log is there. So thousands of
runs that were met before cost one question to the disk.
"""

import os
import re
import time
from pathlib import Path

from halving.imports.reading import is_left_behind

_RUN_FOLDER = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-.+")
# A folder may change twice within a tick of its disk's clock, and the second time leaves no trace.
_TICK_SECONDS = 2.0


class LogPlaces:
    """Finds the logs of a source: a folder with runs in it or below it, a run's folder, or a log.

    Attributes:
        single: whether the source is one run's folder, or its log.
        refused: folders that cannot be listed, and why. They are tried at each look.
    """

    def __init__(self, source: Path) -> None:
        self._top = source.resolve()
        self.refused: dict[Path, OSError] = {}
        self._logs: set[Path] = set()
        self._run_folders: set[Path] = set()  # those whose log was found
        # Each folder that may get another log, and when it had changed at the last look.
        self._folders: dict[Path, float] = {self._top: -1.0}
        self._is_file = self._top.is_file()
        self.single = self._is_file or _is_run_folder(self._top)

    def find_new(self) -> list[Path]:
        """The logs that have come since the last call, sorted.

        Raises:
            OSError: the source itself cannot be read.
        """
        if self._is_file:
            return self._note([self._top])
        new: list[Path] = []
        waiting = list(self._folders)
        while waiting:
            folder = waiting.pop()
            try:
                changed = folder.stat().st_mtime
                if changed == self._folders.get(folder):
                    continue
                logs, folders = _list(folder)
            except OSError as error:
                if folder == self._top:
                    raise
                self._leave(folder, error)
                continue
            self.refused.pop(folder, None)
            new += self._note(logs)
            if _is_run_folder(folder):
                folders = []
            if _is_run_folder(folder) and logs:
                self._folders.pop(folder, None)
                self._run_folders.add(folder)
                continue
            if time.time() - changed < _TICK_SECONDS:
                changed = -1.0
            self._folders[folder] = changed
            waiting += [
                inner for inner in folders if inner not in self._folders and inner not in self._run_folders
            ]
        return sorted(new)

    def _leave(self, folder: Path, error: OSError) -> None:
        self._folders.pop(folder, None)
        self.refused.pop(folder, None)
        if not isinstance(error, FileNotFoundError):
            self._folders[folder] = -1.0
            self.refused[folder] = error

    def _note(self, logs: list[Path]) -> list[Path]:
        new = [log for log in logs if log not in self._logs]
        self._logs.update(new)
        return new


def _is_run_folder(folder: Path) -> bool:
    return _RUN_FOLDER.fullmatch(folder.name) is not None


def _list(folder: Path) -> tuple[list[Path], list[Path]]:
    """The logs and the folders in a folder."""
    logs = []
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_left_behind(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(folder / entry.name)
            elif entry.name.endswith(".wandb") and entry.is_file():
                logs.append(Path(entry.path).resolve())
    return logs, folders
