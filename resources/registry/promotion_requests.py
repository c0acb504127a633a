"""Requests to promote a version: who may not promote says why somebody should, and a person decides.

A request changes no stage. It is an event of the model, which its story, its page and the journal show.
"""

from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from resources.catalog import ModelVersionRow
from resources.catalog.models import versions_of
from resources.registry.events import CHAMPION, REQUESTED, add_event
from resources.registry.verdicts import blockers

MAX_NOTE_LETTERS = 2_000


def request_promotion(session: Session, model: str, version: str, *, actor: str, note: str) -> list[str]:
    """Add the request's event in the caller's transaction; returns what holds the version back now.

    Args:
        note: why.

    Raises:
        NotFound: there is no such version.
        InvalidInput: it is the champion already, or the note is empty or too long.
    """
    if not 1 <= len(note.strip()) <= MAX_NOTE_LETTERS:
        raise InvalidInput(f"the note has {len(note)} letters: say why, in 1 to {MAX_NOTE_LETTERS} letters")
    row = session.get(ModelVersionRow, (model, version))
    if row is None:
        names = ", ".join(other.version for other in versions_of(session, model)) or "none"
        raise NotFound(f"no version {version!r} of model {model!r}; it has {names}")
    if row.stage == CHAMPION:
        raise InvalidInput(f"version = {version!r} is not accepted: it is the champion of {model} already")
    add_event(session, model, REQUESTED, actor, version=row, note=note.strip())
    return blockers(session, row)
