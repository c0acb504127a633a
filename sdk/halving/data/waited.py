"""How long this process has waited for batches of its loaders."""


class Waited:
    """A sum of times.

    Attributes:
        seconds: in all.
        batches: how often a batch was asked for.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.batches = 0

    def add(self, seconds: float) -> None:
        """A batch was asked for, and given after this time."""
        self.seconds += seconds
        self.batches += 1


WAITED = Waited()
"""Of every loader of this process."""
