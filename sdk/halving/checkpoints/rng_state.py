"""Random number generators: seeding them, and saving and restoring their states.

Only libraries that the process has already imported are touched, so that the SDK never imports torch or numpy
for this.
"""

import random
import sys
from typing import Any


def seed_everything(seed: int) -> None:
    """Seed ``random``, and numpy and torch (CPU and every GPU) where they are imported."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)


def rng_states() -> dict[str, Any]:
    """The states of all generators in use, as lists and tensors only, which load without running code."""
    version, internal, gauss = random.getstate()
    states: dict[str, Any] = {"python": [version, list(internal), gauss]}
    if numpy := sys.modules.get("numpy"):
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        states["numpy"] = [name, keys.tolist(), int(position), int(has_gauss), float(cached)]
    if torch := sys.modules.get("torch"):
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_rng_states(states: dict[str, Any]) -> None:
    """Restore what :func:`rng_states` returned, for the libraries that are imported now."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    if (numpy := sys.modules.get("numpy")) and "numpy" in states:
        name, keys, position, has_gauss, cached = states["numpy"]
        numpy.random.set_state((name, numpy.asarray(keys, dtype="uint32"), position, has_gauss, cached))
    if (torch := sys.modules.get("torch")) and "torch" in states:
        torch.set_rng_state(states["torch"])
        if (
            "cuda" in states
            and torch.cuda.is_available()
            and len(states["cuda"]) == torch.cuda.device_count()
        ):
            torch.cuda.set_rng_state_all(states["cuda"])
