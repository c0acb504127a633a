"""Makes ``import wandb`` give ``halving.wandb`` from the start of a process.

Python imports the first ``sitecustomize`` when it starts. This folder is first, so the user's, which would
have been imported without it, is run here.
"""

# ruff: noqa: PTH100, PTH120  # pathlib would have to be loaded in every process
import sys
from importlib.machinery import PathFinder
from os.path import abspath, dirname

import halving_as_wandb  # type: ignore[import-not-found]  # found by PYTHONPATH

halving_as_wandb.install()


def _run_next() -> None:
    here = dirname(abspath(__file__))
    others = [entry for entry in sys.path if abspath(entry) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_run_next()
