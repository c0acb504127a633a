"""The journal: notes that people wrote, beside what happened to runs, sweeps, models and projects.

What happened is read from the rows that say it already; only notes have a table of their own. It must not
know who reads it, nor decide anything.
"""

from resources.journal.notes import MAX_NOTE_CHARACTERS, NOTED_KINDS, add_note
from resources.journal.order import Cursor
from resources.journal.reading import JournalPage, read_journal
from resources.journal.subjects import Subject, resolve_subject, subject_of

__all__ = [
    "MAX_NOTE_CHARACTERS",
    "NOTED_KINDS",
    "Cursor",
    "JournalPage",
    "Subject",
    "add_note",
    "read_journal",
    "resolve_subject",
    "subject_of",
]
