"""Runs an attempt with some of its worker's GPUs.

The fork server imports this module, so it imports next to nothing.
"""

import os
from collections.abc import Callable
from typing import Any


def run_with_gpus(gpus: list[str], main: Callable[..., None], *arguments: Any) -> None:
    """Run the main function of a trial's process with these GPUs alone."""
    # CUDA reads the variable once, and has not started yet.
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    main(*arguments)
