"""Records of runs and trials, as reruns are planned by them."""

import sys
from typing import Any

from halving.query.runs import RunAttempt, RunInfo
from halving.rerun.plan import Plan

COMMIT = "c" * 40
TRIAL = {
    "objectives": [{"metric": "score", "summary": "end", "window": 1, "maximize": True}],
    "bounded": [],
    "divergence": {"loss": [None, 9.0]},
    "max_epochs": 27,
    "dataset_name": "digits",
    "dataset_digest": "sha256:d",
}


def info(git: dict[str, Any], starts: dict[int, dict[str, Any]] | None = None, **record: Any) -> RunInfo:
    provenance = {"git": {"commit": COMMIT, "dirty": False, **git}, "arguments": ["train.py", "--token=…"]}
    determinism = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": None, "torch.threads": 2, "deterministic": True}
    whole = {
        "params": {"lr": 0.1},
        "parent": {},
        "seed": 3,
        "provenance": provenance,
        "determinism": determinism,
        **record,
    }
    attempts = (RunAttempt(1, "finished", "", None, None),)
    return RunInfo("p", "r", {}, whole["parent"], {}, 3, attempts, {}, True, whole, starts or {})


VERSION = ".".join(map(str, sys.version_info[:3]))


def plan(**of_environment: object) -> Plan:
    return Plan(
        name="p/r",
        ended="finished",
        commit="c",
        patch=None,
        folder=".",
        import_paths=(),
        remote=None,
        variables={},
        params={},
        seed=None,
        deterministic=False,
        environment={"python": {"version": VERSION}, **of_environment},
    )
