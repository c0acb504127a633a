"""Which of a worker's GPUs an attempt sees. The fork server imports this, so it imports next to nothing."""

import os
from collections.abc import Callable
from typing import Any


def run_with_gpus(gpus: list[str], main: Callable[..., None], *arguments: Any) -> None:
    """The main function of a trial's process, with these GPUs alone: CUDA, which reads the variable once, has
    not started yet.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    main(*arguments)
