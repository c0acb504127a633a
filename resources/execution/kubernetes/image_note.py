"""Writes the digest of a pod's image beside the attempt's record, for a rerun."""

import logging
import time

from halving.errors import StoreError
from halving.records.provenance import DIGEST
from halving.records.run_record import RunRecords

_AGAIN_SECONDS = 30.0  # until the next try after the store has refused it

_log = logging.getLogger(__name__)


class ImageNote:
    """Writes the digest down once it is known, because the spec's tag may later mean another image.

    Args:
        records: of the trial's run.
        attempt: the one that runs in the pod.
        named: the image as the spec names it; an image that is named by its digest needs no note.
    """

    def __init__(self, records: RunRecords, attempt: int, named: str) -> None:
        self._records = records
        self._attempt = attempt
        self._noted = DIGEST in named
        self._not_before = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether the digest still has to be written down."""
        return not self._noted

    def note(self, image: str | None, *, last: bool = False) -> None:
        """Write the digest down, unless that was done before.

        Args:
            image: as the cluster names it, ``registry/train@sha256:…``; None while that is unknown.
            last: try it although the store has just refused it.
        """
        if (
            self._noted
            or image is None
            or DIGEST not in image
            or (time.monotonic() < self._not_before and not last)
        ):
            return
        try:
            self._records.add_image_digest(self._attempt, DIGEST + image.rpartition(DIGEST)[2])
        except StoreError as error:
            _log.warning(
                "the digest of the image of run %s is not written down yet: %s", self._records.run, error
            )
            self._not_before = time.monotonic() + _AGAIN_SECONDS
            return
        self._noted = True
