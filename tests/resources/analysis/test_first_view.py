"""The table of runs shows, before anybody has chosen, what the newest sweep was about."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from resources.analysis.run_index import Refresher
from resources.analysis.run_index.first_view import FirstView, first_view
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import parse_spec
from tests.backends import SMALL, snapshot_row
from tests.indexed_runs import add_run, record_of

FLOAT = {"float": {"low": 0.0, "high": 1.0}}


def add_sweep(
    backend: Backend, changes: Mapping[str, Any] | None = None, *, metrics: tuple[str, ...] = ("score",)
) -> str:
    """A sweep with one run that has a value of each metric; without metrics it has no run yet."""
    spec = parse_spec(copy.deepcopy(SMALL) | dict(changes or {}))
    with backend.catalog.write() as session:
        session.merge(snapshot_row("sha256:a"))
    sweep = open_sweep(backend.catalog, spec, "sha256:a", driver="job", commit=None).id
    if metrics:
        add_run(
            backend.store, f"{sweep}.0000", {}, project=spec.name, **{metric: [0.5] for metric in metrics}
        )
        record = record_of(backend.store, f"{sweep}.0000", spec.name)
        record.write_text(
            record.read_text().replace('"parent": {}', f'"parent": {{"sweep": "{sweep}", "trial": 0}}')
        )
    return sweep


def view_of(backend: Backend, projects: list[str] | None = None) -> FirstView | None:
    Refresher(backend.store, backend.catalog).refresh()
    with backend.catalog.read() as session:
        return first_view(session, projects)


def objective(**changes: Any) -> dict[str, Any]:
    return {"objective": {"metric": "score", "direction": "maximize"} | changes}


@pytest.mark.parametrize(
    ("changes", "view"),
    [
        ({}, FirstView("order by metrics.score desc", ["metrics.score", "params.x"])),
        (objective(direction="minimize"), FirstView("order by metrics.score", ["metrics.score", "params.x"])),
        (
            objective(summary="best"),
            FirstView("order by best(metrics.score) desc", ["best(metrics.score)", "params.x"]),
        ),
        (
            objective(summary="average"),
            FirstView("order by metrics.score desc", ["metrics.score", "params.x"]),
        ),
        (
            {
                "space": {
                    "same": {"constant": 1},
                    "one": {"categorical": ["adam"]},
                    "optimizer": {"categorical": ["adam", "sgd"]},
                }
            },
            FirstView("order by metrics.score desc", ["metrics.score", "params.optimizer"]),
        ),
        (
            {
                "space": {
                    "optimizer.lr": FLOAT,
                    "batch-size": {"int": {"low": 1, "high": 9}},
                    "learning rate": FLOAT,
                }
            },
            FirstView(
                "order by metrics.score desc",
                ["metrics.score", "params.optimizer.lr", "params.batch-size", 'params."learning rate"'],
            ),
        ),
        (
            {"space": {f"p{number}": FLOAT for number in range(9)}},
            FirstView(
                "order by metrics.score desc",
                ["metrics.score", *(f"params.p{number}" for number in range(7))],
            ),
        ),
    ],
)
def test_it_has_the_objective_and_the_params_that_vary(
    backend: Backend, changes: dict[str, Any], view: FirstView
) -> None:
    add_sweep(backend, changes)
    assert view_of(backend) == view


def test_it_is_that_of_the_newest_sweep_with_a_result(either_backend: Backend) -> None:
    assert view_of(either_backend) is None
    add_sweep(either_backend, metrics=())
    add_sweep(either_backend, metrics=("another",))
    assert view_of(either_backend) is None
    add_sweep(either_backend)
    add_sweep(either_backend, {"space": {"y": FLOAT}})
    add_sweep(either_backend, {"space": {"z": FLOAT}, **objective(metric="nothing-yet")})
    add_sweep(either_backend, {"space": {"same": {"constant": 1}}, "max_trials": 1})  # as a training run is
    assert view_of(either_backend) == FirstView("order by metrics.score desc", ["metrics.score", "params.y"])
    add_sweep(
        either_backend,
        {"space": {"z": FLOAT}, **objective(metric="loss", direction="minimize")},
        metrics=("loss",),
    )
    assert view_of(either_backend) == FirstView("", ["metrics.loss", "params.z"])


def test_it_is_of_the_projects_alone_that_the_reader_may_see(backend: Backend) -> None:
    add_sweep(backend)
    add_sweep(
        backend, {"name": "secret", "space": {"hidden": FLOAT}, **objective(metric="loss")}, metrics=("loss",)
    )
    assert view_of(backend, ["small"]) == FirstView(
        "order by metrics.score desc", ["metrics.score", "params.x"]
    )
    assert view_of(backend, ["nobody"]) is None


def test_a_sweep_that_this_version_cannot_read_is_passed_over(backend: Backend) -> None:
    add_sweep(backend)
    unreadable = add_sweep(backend, {"space": {"y": FLOAT}})
    with backend.catalog.write() as session:
        row = session.get(SweepRow, unreadable)
        assert row is not None
        row.spec = {"from": "another version"}
    assert view_of(backend) == FirstView("order by metrics.score desc", ["metrics.score", "params.x"])
