"""Tests; this is imported before any of them, and before anything numeric.

Libraries read once how many threads they may use. Several tests run at a time, and threads that wait for a
core that another has do not sleep: with more than one each, what a test computes takes up to ten times the
CPU.
"""

import os

for name in ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
