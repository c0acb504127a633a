"""Imported last by the fork server that trials are forked from: what torch would import when the first optimizer is made.

``torch.optim`` imports ``torch._dynamo`` (and sympy with it) only then, which takes over a second in every process.
"""

import contextlib
import sys

if "torch" in sys.modules:
    with contextlib.suppress(ImportError):
        import torch._dynamo  # noqa: F401
