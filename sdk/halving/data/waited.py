"""The time that this process has spent waiting for batches of its loaders."""


class Waited:
    """A sum of waiting times.

    Attributes:
        seconds: the sum.
        batches: number of batches that were requested.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.batches = 0

    def add(self, seconds: float) -> None:
        """Add the time that one batch took to come."""
        self.seconds += seconds
        self.batches += 1


WAITED = Waited()
"""The waiting times of all loaders of this process."""
