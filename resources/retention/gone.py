"""Counts of what a retention deleted or moved."""

from typing import NamedTuple


class Gone(NamedTuple):
    """What was deleted or moved, or would be, of one kind in a project; ``project`` may be empty.

    ``kind`` is one of ``points``, ``system points``, ``rollups``, ``checkpoints``, ``media``, ``artifacts``,
    ``unnamed blobs``, ``journals``, ``leftover files``, ``deleted runs``, ``blobs moved to the cold tier``,
    ``Dagster runs``, ``Dagster partitions`` or ``Dagster logs``.
    """

    project: str
    kind: str
    count: int  # type: ignore[assignment]  # It hides tuple.count, which nobody calls.
    bytes: int
