"""What the summary keeps of calls from several threads, of values that change later, and of a device's."""

import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from halving import Store
from halving.wandb import history
from halving.wandb.defined_metrics import define
from halving.wandb.history import History
from tests.sdk.wandb.recorded import curves_of, recorded_run

_THREADS = 4
_CALLS = 150


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("frequent_switches")
def test_each_call_of_several_threads_has_a_step_of_its_own(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")

    def work(number: int) -> None:
        for call in range(_CALLS):
            run.log({"loss": float(call), "worker": float(number)})
            run.log({"text": "slow", "slow": float(call)})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = _THREADS * _CALLS
    assert run.step == 2 * calls
    run.finish()
    curves = curves_of(store, run)
    assert [len(curves[name]) for name in ("loss", "worker", "slow")] == [calls] * 3


def test_a_value_that_the_script_changes_later_is_as_it_was_logged(wandb: ModuleType, store: Store) -> None:
    torch = pytest.importorskip("torch")
    array = np.array(5.0)
    tensor = torch.tensor(7.0)
    run = wandb.init(project="p")
    wandb.log({"array": array, "tensor": tensor})
    array += 1
    tensor.zero_()
    assert (run.summary["array"], run.summary["tensor"]) == (5.0, 7.0)
    run.finish()
    assert recorded_run(store, run).summary == {"array": 5.0, "tensor": 7.0}


def test_a_value_that_cannot_be_read_leaves_the_rest_of_the_summary(wandb: ModuleType, store: Store) -> None:
    torch = pytest.importorskip("torch")
    run = wandb.init(project="p")
    run.define_metric("*", summary="max")
    with pytest.warns(UserWarning, match="dropped"):
        wandb.log({"acc": 0.5, "broken": torch.empty((), device="meta")})
        run.summary["best"] = 4
        run.finish()
    assert recorded_run(store, run).summary == {"acc": 0.5, "acc/max": 0.5, "best": 4.0}


class _Computing:
    """A number that a device is said to compute."""

    def detach(self) -> "_Computing":
        return self

    def clone(self) -> "_Computing":
        return self


def test_no_call_waits_for_a_device_whose_value_has_an_aggregate(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def capture(values: dict[str, Any]) -> list[tuple[tuple[str, ...], Any]]:
        def fetch() -> list[float]:
            fetched.extend(values)
            return [3.0]

        return [(tuple(values), fetch)]

    monkeypatch.setattr(history, "is_on_device", lambda value: isinstance(value, _Computing))
    monkeypatch.setattr(history, "capture", capture)
    steps = History(None)
    steps.define(define("*", summary="max,last"), overwrite=False)
    for rate in (0.1, 0.2):
        steps.log({"loss": _Computing(), "lr": rate}, None, None)
    assert fetched == []
    summary = steps.summary()
    assert summary["loss"] == {"max": 3.0, "last": 3.0}
    assert summary["lr"] == {"max": 0.2, "last": 0.2}
    assert fetched == ["loss", "loss"]


def test_a_later_definition_completes_or_replaces_an_earlier_one(wandb: ModuleType) -> None:
    run = wandb.init(project="p")
    run.define_metric("x", summary="max")
    for value in (2, 1):
        wandb.log({"x": value})
    run.define_metric("x", summary="min")
    wandb.log({"x": 3})
    assert run.summary["x"]._as_dict() == {"max": 3, "min": 1}
    run.define_metric("x", summary="min", overwrite=True)
    assert run.summary["x"]._as_dict() == {"min": 1}
    run.define_metric("x", overwrite=True)
    assert run.summary["x"] == 3


def test_a_step_of_more_than_63_bits_is_refused(wandb: ModuleType) -> None:
    run = wandb.init(project="p")
    with pytest.raises(ValueError, match="Value out of range"):
        wandb.log({"a": 1}, step=2**63)
    wandb.log({"a": 2})
    assert (run.step, run.summary["a"]) == (1, 2)


def test_a_series_is_left_out_with_a_warning(wandb: ModuleType) -> None:
    pandas = pytest.importorskip("pandas")
    run = wandb.init(project="p")
    with pytest.warns(UserWarning, match="'s' = a Series"):
        wandb.log({"s": pandas.Series([1.0]), "a": 1})
    assert (run.step, run.summary["a"]) == (1, 1)


def test_names_below_a_name_stay_in_the_summary_until_they_are_logged_again(wandb: ModuleType) -> None:
    run = wandb.init(project="p")
    run.define_metric("d.a", summary="mean")
    wandb.log({"d": {"a": 1, "b": 2, "deep": {"x": 1}}})
    wandb.log({"d": {"a": 3, "deep": {"y": 2}}})
    assert run.summary["d"]._as_dict() == {"a": {"mean": 2}, "b": 2, "deep": {"x": 1, "y": 2}}


def test_a_disabled_run_refuses_nothing_even_after_its_end(wandb: ModuleType) -> None:
    run = wandb.init(project="p", mode="disabled")
    assert run.watch("no model of PyTorch") == []
    run.finish()
    run.log({"a": 1})
    run.summary["b"] = 2
