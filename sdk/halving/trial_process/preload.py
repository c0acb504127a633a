"""Imports that every trial needs; the fork server makes them last, before trials are forked from it.

``torch.optim`` imports ``torch._dynamo`` (and sympy with it) only when the first optimizer is created, which
takes more than a second in each process; Parquet is first needed when the first points are written.
"""

import contextlib
import gc
import sys

import pyarrow.parquet  # noqa: F401

import halving.metrics.downsampling  # noqa: F401

if "torch" in sys.modules:
    with contextlib.suppress(ImportError):
        import torch._dynamo  # noqa: F401

# All of it stays as long as the server lives. The collector of a trial need not search it, which would copy
# every page of it that it touches.
gc.freeze()
