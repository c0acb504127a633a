"""What every trial would import for itself.

The fork server imports it last, before trials are forked from it.

``torch.optim`` imports ``torch._dynamo`` (and sympy with it) only when the first optimizer is made, which
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

# All of it stays for as long as the server lives: the collector of a trial need not look through it, which
# would also copy every page of it that it touches.
gc.freeze()
