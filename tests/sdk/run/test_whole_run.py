"""Values of the whole run, and what is called before its end."""

from collections.abc import Callable
from typing import Any

import pytest

import halving
from halving import Run, Store
from halving.errors import InvalidInput
from halving.query.runs import read_run


def _open(store: Store, **options: Any) -> Run:
    return halving.init("p", root=store.root, system_metrics=None, **options)


def test_values_of_the_whole_run_are_in_its_summary(store: Store) -> None:
    with _open(store) as run:
        run.log({"loss": 2.0, "acc": 0.1}, step=0)
        run.summarize({"best": {"acc": 0.9}, "acc": 0.5})
        run.summarize({"epochs": 3})
    assert read_run(store, "p", run.id).summary == {
        "acc": 0.5,
        "best/acc": 0.9,
        "epochs": 3.0,
        "loss": 2.0,
    }


@pytest.mark.parametrize("value", ["high", [1], halving.Text("t")])
def test_a_summary_value_that_is_no_number_is_refused(store: Store, value: Any) -> None:
    run = _open(store)
    with pytest.warns(UserWarning, match="best"):
        run.summarize({"best": value, "loss": 1})
    with pytest.warns(UserWarning, match="1 values of"):
        run.finish()
    assert read_run(store, "p", run.id).summary == {"loss": 1.0}
    strict = _open(store, strict=True)
    with pytest.raises(InvalidInput, match="best"):
        strict.summarize({"best": value})
    strict.finish()


def test_actions_are_called_once_before_the_end_and_may_log(store: Store) -> None:
    run = _open(store)
    calls: list[str] = []

    def log_last() -> None:
        calls.append("log")
        run.log({"last": 1.0}, step=1)
        run.summarize({"total": 2})

    def fail() -> None:
        raise RuntimeError("broken")

    run.before_end(fail)
    run.before_end(log_last)
    with pytest.warns(UserWarning, match="RuntimeError: broken"):
        run.finish()
    run.finish()
    assert calls == ["log"]
    info = read_run(store, "p", run.id)
    assert (info.status, info.summary) == ("finished", {"last": 1.0, "total": 2.0})


def test_an_action_that_finishes_the_run_ends_it_once(store: Store) -> None:
    run = _open(store)
    finish: Callable[[str], None] = run.finish
    run.before_end(lambda: finish("failed"))
    run.finish()
    assert read_run(store, "p", run.id).status == "failed"
