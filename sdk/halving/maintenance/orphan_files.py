"""What killed processes leave in the store, and what nobody needs any more: mail, what a job's steps handed on, unfinished files."""

import re
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from halving.store.store import Store

# Each is far beyond the age at which anybody alive may still want the file.
MAIL_AGE = timedelta(days=30)  # a message is read within minutes, and a trial's task when its pod starts
STEP_AGE = timedelta(days=365)  # a sweep's job reads at its end what its first step has handed on
UNFINISHED_AGE = timedelta(days=1)  # as Store.clear_abandoned; a claim goes stale after two minutes
_UNFINISHED = re.compile(r"\.claim-.+|\..+\.\d+\.[0-9a-f]{8}")  # halving.store.create_once, and the store's own temporary names


class OrphanFile(NamedTuple):
    """A file to take away; ``run`` is the run that it belongs to, or Dagster's (``project`` is empty then)."""

    project: str
    run: str
    name: str
    bytes: int


def find_orphan_files(
    store: Store, protected: Collection[tuple[str, str]], now: datetime, project: str | None = None
) -> Iterator[OrphanFile]:
    """The orphan files of all projects, or of one.

    Args:
        protected: ``(project, run)`` whose mail stays.
        now: the moment to count from.
    """
    folders = [f"runs/project={project}", f"metrics/project={project}"] if project else ["runs", "metrics", "steps"]
    for folder in folders:
        for name, size, written in store.files(folder):
            found = owner_of_orphan_file(name, now - datetime.fromtimestamp(written, now.tzinfo), protected)
            if found is not None:
                yield OrphanFile(*found, name, size)


def owner_of_orphan_file(name: str, age: timedelta, protected: Collection[tuple[str, str]]) -> tuple[str, str] | None:
    """The project and the run of a file if it is left over, or None. Pure."""
    area, *folders, file = name.split("/")
    if area == "steps":
        owner = ("", folders[0]) if folders else ("", "")
        return owner if age > STEP_AGE else None
    project, run, kind = (*folders, "", "", "")[:3]
    owner = project.removeprefix("project="), run.removeprefix("run=")
    if _UNFINISHED.fullmatch(file):
        return owner if age > UNFINISHED_AGE else None
    if area == "runs" and kind == "mail" and owner not in protected:
        return owner if age > MAIL_AGE else None
    return None
