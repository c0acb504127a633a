"""What makes a training give the same result again, and what of it the record says.

Sources: PyTorch's notes on reproducibility; for ``CUBLAS_WORKSPACE_CONFIG`` the cuBLAS documentation,
"Results reproducibility".
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

VARIABLES = (
    "PYTHONHASHSEED",
    "CUBLAS_WORKSPACE_CONFIG",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)
"""Environment variables that are read once, when a process or a library begins, and that can change
results.
"""
_WORKSPACE = ":4096:8"  # 24 MiB for each cuBLAS handle; ":16:8" is smaller and slower


def make_deterministic() -> None:
    """Let numpy and torch, where they are installed, compute the same from the same seed; to be called before
    seeding them.

    torch then refuses an operation that has no deterministic implementation, and data loaders' workers are
    seeded by torch itself, from its own generator (``random``, numpy and torch in each). It changes the whole
    process, for good. Equal results need equal threads, too, and the same seed of ``hash``; those are read
    before any of this code runs, so they are recorded (:func:`determinism_flags`), and a rerun starts its
    process with them.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", _WORKSPACE)  # read when cuBLAS is first used
    for name in ("numpy", "torch"):
        # Imported here: what a training function imports later would otherwise be neither seeded nor
        # deterministic.
        if name not in sys.modules and find_spec(name) is not None:
            import_module(name)
    if torch := sys.modules.get("torch"):
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def hash_is_random() -> bool:
    """Whether Python's ``hash`` of texts differs from one start of this program to the next, and with it the
    order of a set of them.
    """
    seed = os.environ.get("PYTHONHASHSEED", "")
    # the program has set it itself, after Python had read it
    too_late = seed == "0" and bool(sys.flags.hash_randomization)
    return too_late or not seed.isdigit()


def determinism_flags() -> dict[str, Any]:
    """The settings that decide whether this process is deterministic, for the run's record."""
    flags: dict[str, Any] = {name: os.environ.get(name) for name in VARIABLES}
    if torch := sys.modules.get("torch"):
        flags["torch.deterministic_algorithms"] = torch.are_deterministic_algorithms_enabled()
        flags["torch.cudnn.deterministic"] = torch.backends.cudnn.deterministic
        flags["torch.cudnn.benchmark"] = torch.backends.cudnn.benchmark
        flags["torch.threads"] = torch.get_num_threads()
    return flags
