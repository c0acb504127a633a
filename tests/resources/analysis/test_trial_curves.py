"""Curves from Parquet: stitched over resumes, for live and closed runs."""

from halving.run.run import Run
from resources.analysis.trial_curves import curves
from resources.backend import Backend


def start_run(backend: Backend, run_id: str, attempt: int) -> Run:
    return Run(
        backend.store,
        project="p",
        run_id=run_id,
        params={},
        seed=None,
        attempt=attempt,
        captured={"packages": {}},
    )


def test_a_resumed_run_is_stitched_so_that_the_latest_attempt_counts_at_each_step(backend: Backend) -> None:
    first = start_run(backend, "r", 1)
    for step in range(1, 8):
        first.log({"loss": 100 + step}, step=step)
    first.finish()
    second = start_run(backend, "r", 2)
    for step in range(5, 10):
        second.log({"loss": 200 + step}, step=step)
    second.finish()
    table = curves(backend.store, "p", ["r"], "loss")
    assert table["step"].to_pylist() == list(range(1, 10))
    assert table["value"].to_pylist() == [101, 102, 103, 104, 205, 206, 207, 208, 209]


def test_only_the_asked_metric_and_runs_come_back_in_order(backend: Backend) -> None:
    for name in ("b", "a", "c"):
        with start_run(backend, name, 1) as run:
            run.log({"loss": 1.0, "accuracy": 0.5}, step=2)
            run.log({"loss": 2.0}, step=1)
    table = curves(backend.store, "p", ["b", "a"], "loss").select(["run", "key", "step", "value"])
    assert table.to_pylist() == [
        {"run": "a", "key": "loss", "step": 1, "value": 2.0},
        {"run": "a", "key": "loss", "step": 2, "value": 1.0},
        {"run": "b", "key": "loss", "step": 1, "value": 2.0},
        {"run": "b", "key": "loss", "step": 2, "value": 1.0},
    ]


def test_a_live_run_shows_what_it_has_flushed(backend: Backend) -> None:
    run = start_run(backend, "live", 1)
    run.log({"loss": 1.0}, step=1)
    assert run.flush()
    assert curves(backend.store, "p", ["live"], "loss")["value"].to_pylist() == [1.0]
    run.finish()


def test_runs_without_points_and_runs_without_the_key_have_no_rows(backend: Backend) -> None:
    with start_run(backend, "r", 1) as run:
        run.log({"loss": 1.0}, step=1)
    with start_run(backend, "other", 1) as run:
        run.log({"accuracy": 1.0}, step=1)
    table = curves(backend.store, "p", ["nothing", "r", "other"], "loss")
    assert table["run"].to_pylist() == ["r"]
    for runs, key in ((["nothing"], "loss"), (["r"], "accuracy"), ([], "loss")):
        empty = curves(backend.store, "p", runs, key)
        assert len(empty) == 0
        assert empty.schema == table.schema


def test_a_key_that_looks_like_sql_is_only_a_key(backend: Backend) -> None:
    with start_run(backend, "r", 1) as run:
        run.log({"loss'; DROP TABLE points; --": 1.0}, step=1)
    assert curves(backend.store, "p", ["r"], "loss'; DROP TABLE points; --")["value"].to_pylist() == [1.0]
