"""What all values of W&B's kinds have in common: each becomes media of this platform when it is made."""

from collections.abc import Mapping
from typing import TypeAlias

from halving.ingest.media import Media as StoredMedia

Stored: TypeAlias = "StoredMedia | Mapping[str, StoredMedia]"
"""What a value is stored as: one medium, or several by the names that follow its own after a ``/``."""


class WBValue:
    """A value that can be logged beside numbers and texts."""

    _log_type = "value"

    def to_media(self) -> Stored:
        """What is stored of it."""
        raise NotImplementedError(f"{type(self).__name__} is a base class and holds nothing to be logged")


class Media(WBValue):
    """A value with one file, which is made when the object is: later changes of its source change nothing."""

    _stored: StoredMedia

    def to_media(self) -> Stored:
        return self._stored

    @property
    def _caption(self) -> str | None:
        return self._stored.caption


class BatchableMedia(Media):
    """Media of which W&B logs lists under one name; here each gets ``/0``, ``/1`` … after it."""


class FileMedia(StoredMedia):
    """A file that the page offers as a download, because it has no viewer for its kind.

    Args:
        kind: what the page calls it: ``object3d``.
        suffix: of the file, with its dot.
    """

    def __init__(
        self, content: bytes, kind: str, suffix: str, caption: str | None, media_type: str | None = None
    ) -> None:
        self.kind = kind
        self.suffix = suffix
        self.media_type = media_type or "application/octet-stream"
        super().__init__(content, {"format": suffix.removeprefix(".")}, caption)


def text_or_none(caption: object) -> str | None:
    """A caption as W&B takes it: whatever it is, its text is shown."""
    if caption is None:
        return None
    return str(caption)
