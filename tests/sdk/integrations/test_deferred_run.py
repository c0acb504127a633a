"""The run of an integration: opened late, with the params that the framework knows."""

import argparse
import pickle

import pytest

import halving
from halving import AlreadyExists, InvalidInput, Store
from halving.integrations.deferred_run import DeferredRun
from tests.sdk.integrations.conftest import StoredRuns


def test_a_run_of_ones_own_is_opened_at_the_first_need_with_config_before_all_else(
    store: Store, stored_runs: StoredRuns
) -> None:
    late = DeferredRun("p", None, {"root": store.root, "config": {"lr": 0.5}})
    assert late.opened is None
    assert store.names("") == []
    run = late.open({"lr": 0.1, "width": 8})
    assert late.open({"lr": 0.9}) is run is late.opened
    assert (late.project, late.id, run.params) == ("p", run.id, {"lr": 0.5, "width": 8})
    assert late.changed_names({"lr": 0.1, "width": 8}) == []
    assert late.changed_names({"width": 9, "depth": 2}) == ["depth", "width"]
    late.finish("finished")
    assert stored_runs.ends(run.id) == ["finished"]
    assert late.opened is None


def test_config_is_any_object_of_names_and_values(store: Store, stored_runs: StoredRuns) -> None:
    late = DeferredRun(
        "p", None, {"root": store.root, "config": argparse.Namespace(lr=0.5, betas=(0.9, 0.99))}
    )
    assert late.open({"lr": 0.1, "width": 8}).params == {"lr": 0.5, "betas": [0.9, 0.99], "width": 8}
    assert late.changed_names({"lr": 0.1, "width": 8}) == []
    late.finish("finished")
    with pytest.raises(InvalidInput, match=r"config = \[1\] is not accepted: give names and values"):
        DeferredRun("p", None, {"root": store.root, "config": [1]})


def test_what_comes_after_the_end_goes_to_the_next_attempt(store: Store, stored_runs: StoredRuns) -> None:
    late = DeferredRun("p", None, {"root": store.root})
    late.open({"lr": 0.1})
    late.finish("failed")
    again = late.open()
    assert (again.attempt, again.params) == (2, {"lr": 0.1})
    late.finish("finished")
    assert stored_runs.ends(late.id) == ["failed", "finished"]


def test_another_training_is_a_new_run_or_the_next_attempt_of_the_named_one(
    store: Store, stored_runs: StoredRuns
) -> None:
    for named, ids, attempts in (({}, 2, [1, 1]), ({"id": "r"}, 1, [1, 2])):
        late = DeferredRun("p", None, {"root": store.root, **named})
        runs = []
        for _ in range(2):
            late.renew()
            runs.append(late.open({"lr": 0.1}))
            late.renew()
            assert late.opened is runs[-1]
            late.finish("finished")
        assert len({run.id for run in runs}) == ids
        assert [run.attempt for run in runs] == attempts
    with pytest.raises(AlreadyExists, match="params never change"):
        DeferredRun("p", None, {"root": store.root, "id": "r"}).open({"lr": 0.2})
    kept = DeferredRun("p", None, {"root": store.root, "id": "r"})
    assert kept.open().params == {"lr": 0.1}
    kept.finish("finished")


def test_the_callers_run_keeps_its_params_and_is_not_finished(store: Store, stored_runs: StoredRuns) -> None:
    with halving.init("p", {"lr": 0.1}, store.root, id="r") as run:
        late = DeferredRun(None, run, {})
        late.renew()
        assert late.open({"lr": 0.2}) is run
        assert (late.project, late.id, late.changed_names({"lr": 0.2})) == ("p", "r", [])
        run.log({"loss": 1.0}, step=1)
        late.finish("finished")
        assert stored_runs.points("r") == {"loss": {1: 1.0}}
        assert stored_runs.ends("r") == []


def test_an_unopened_run_goes_to_another_process(store: Store) -> None:
    late = pickle.loads(pickle.dumps(DeferredRun("p", None, {"root": store.root})))
    assert late.opened is None
    run = late.open()
    late.finish("finished")
    assert run.id == late.id


def test_a_run_and_the_arguments_of_another_are_refused_together(store: Store) -> None:
    with halving.init("p", root=store.root) as run:
        for project, callers_run, arguments in ((None, None, {}), ("p", run, {}), (None, run, {"seed": 1})):
            with pytest.raises(InvalidInput, match=r"give run=… alone, or project=…"):
                DeferredRun(project, callers_run, arguments)
    with pytest.raises(TypeError, match="colour"):
        DeferredRun("p", None, {"colour": "red"})
