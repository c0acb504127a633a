"""The SDK's schedule of pauses between retries."""

import random
from collections.abc import Iterator

# The global generator is the training's, and its states are in checkpoints; so this is another one.
_JITTER = random.SystemRandom()


def backoff(first: float = 0.5, longest: float = 10.0) -> Iterator[float]:
    """Pauses in seconds that double from ``first`` to ``longest``.

    Each is multiplied by a random factor in [0.5, 1.5).
    """
    pause = first
    while True:
        yield min(pause, longest) * _JITTER.uniform(0.5, 1.5)
        pause = min(2 * pause, longest)
