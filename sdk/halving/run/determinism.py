"""Settings that make a training reproducible, and their entry in the run's record.

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
"""Environment variables that can change results, and are read only when a process or a library starts."""
_WORKSPACE = ":4096:8"  # 24 MiB for each cuBLAS handle; ":16:8" is smaller and slower


def make_deterministic() -> None:
    """Make numpy and torch deterministic, where they are installed; call it before seeding them.

    torch then refuses an operation that has no deterministic implementation, and seeds data loaders' workers
    itself, from its own generator (``random``, numpy and torch in each). The whole process is changed, for
    good. Equal results also need equal numbers of threads and the same seed of ``hash``. Those are read
    before any of this code runs, so they are recorded (:func:`determinism_flags`), and a rerun starts its
    process with them.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", _WORKSPACE)  # cuBLAS reads it at its first use.
    for name in ("numpy", "torch"):
        # A library that a training function imported later would be neither seeded nor deterministic.
        if name not in sys.modules and find_spec(name) is not None:
            import_module(name)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def hash_is_random() -> bool:
    """Whether ``hash`` of texts, and so the order of their sets, differs between starts of this program."""
    seed = os.environ.get("PYTHONHASHSEED", "")
    # The program may have set the variable itself, after Python had read it.
    is_set_too_late = seed == "0" and bool(sys.flags.hash_randomization)
    return is_set_too_late or not seed.isdigit()


def determinism_flags() -> dict[str, Any]:
    """The settings that decide whether this process is deterministic, for the run's record."""
    flags: dict[str, Any] = {name: os.environ.get(name) for name in VARIABLES}
    torch = sys.modules.get("torch")
    if torch is not None:
        flags["torch.deterministic_algorithms"] = torch.are_deterministic_algorithms_enabled()
        flags["torch.cudnn.deterministic"] = torch.backends.cudnn.deterministic
        flags["torch.cudnn.benchmark"] = torch.backends.cudnn.benchmark
        flags["torch.threads"] = torch.get_num_threads()
    return flags
