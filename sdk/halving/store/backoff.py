"""The SDK's one schedule of pauses between retries."""

import random
from collections.abc import Iterator

# of its own: the global generator is the training's, and its states are checkpointed
_JITTER = random.SystemRandom()


def backoff(first: float = 0.5, longest: float = 10.0) -> Iterator[float]:
    """Pauses in seconds that double from first to longest, each multiplied by a random factor in [0.5,
    1.5).
    """
    pause = first
    while True:
        yield min(pause, longest) * _JITTER.uniform(0.5, 1.5)
        pause = min(2 * pause, longest)
