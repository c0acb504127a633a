"""Two runs that differ, and reruns of them that are planned but not trained."""

from halving import Store
from halving.query.runs import RunAttempt, RunInfo, read_run
from halving.rerun.plan import Plan, plan_of
from tests.sdk.run.runs import start


def recorded_in(store: Store, first: float, second: float) -> tuple[RunInfo, RunInfo]:
    """Two runs that differ in a param and in the seed, with the last value of each."""
    for name, value, lr in (("a", first, 0.1), ("b", second, 0.2)):
        with start(store, run_id=name, params={"lr": lr}, seed=int(10 * lr)) as run:
            run.log({"score": value}, step=1)
    return read_run(store, "p", "a"), read_run(store, "p", "b")


def _plan() -> Plan:
    provenance = {"git": {"commit": "0" * 40}, "arguments": ["train.py"]}
    record = {"parent": {}, "params": {}, "seed": 0, "ordinal": 1, "provenance": provenance}
    attempt = RunAttempt(1, "finished", "2026-01-01T00:00:00+00:00", None, None, None, None, None, None, None)
    return plan_of(RunInfo("p", "a", {}, {}, {}, 0, (attempt,), {}, True, record), None)


PLAN = _plan()
TRIAL = {
    "objectives": [{"metric": "score", "summary": "end", "window": 1, "maximize": True}],
    "max_epochs": 9,
    "dataset_name": "digits",
    "dataset_digest": "sha256:1",
    "train_on": ["train"],
    "deterministic": False,
    "start_from": None,
}
