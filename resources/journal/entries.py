"""An entry of the journal, and what the sources of entries are asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resources.journal.order import Cursor, Window
from resources.journal.subjects import Subject


@dataclass(frozen=True)
class Entry:
    """A note, or something that happened.

    Attributes:
        place: where it stands in the journal's order.
        at: when, in UTC.
        what: note, or a word for what happened, such as finished, failed, promoted.
        kind: that of the subject: run, sweep, model, project or snapshot.
        subject: what it is about: ``project/run``, a sweep's id, ``model`` or ``model@version``, a project,
            ``dataset@digest``.
        project: the project of the subject; of a model it is the model's name, and a snapshot has none.
        actor: who did it: a person, a token, or a sweep; None if that is not recorded.
        summary: what happened, in a few words without the subject; empty for a note.
        text: a note in Markdown, or the reason that somebody gave; None without one.
    """

    place: Cursor
    at: datetime
    what: str
    kind: str
    subject: str
    project: str | None
    actor: str | None
    summary: str
    text: str | None = None

    @property
    def id(self) -> str:
        """A name of the entry that stays the same: ``note:17``."""
        return ":".join([self.place.source, *map(str, self.place.key)])

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain data, as ``halving journal --json`` and the API give it."""
        return {
            "id": self.id,
            "at": self.at,
            "what": self.what,
            "kind": self.kind,
            "subject": self.subject,
            "project": self.project,
            "actor": self.actor,
            "summary": self.summary,
            "text": self.text,
        }


@dataclass(frozen=True)
class Question:
    """What a source of entries is asked.

    Attributes:
        window: which entries the page may have.
        projects: all names of the projects whose entries are wanted; None for all projects.
        subject: the only subject, with what belongs to it, or None. Its project was checked before.
        kind: the kind of subject whose entries are wanted; None for all kinds.
    """

    window: Window
    projects: Sequence[str] | None = None
    subject: Subject | None = None
    kind: str | None = None
