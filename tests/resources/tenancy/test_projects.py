"""Projects by hand: what is set, shown and renamed, and one clear error for each wrong input."""

from typing import Any

import pytest

from halving.errors import AlreadyExists, HalvingError, InvalidInput, NotFound
from resources.analysis.sweep_list import list_sweeps
from resources.catalog import Catalog, ExperimentRow, ProjectRow, RunRow, SweepRow, utcnow
from resources.tenancy.projects import (
    all_names_of,
    list_projects,
    names_of,
    rename_project,
    set_project,
    show_project,
)
from tests.backends import snapshot_row


def add_sweep(catalog: Catalog, project: str) -> None:
    with catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
        session.flush()
        row = SweepRow(
            id=f"{project}-1",
            name=project,
            spec={},
            spec_digest="d",
            snapshot="sha256:s",
            driver="job",
            ordinal=0,
        )
        row.status = "finished"
        row.created_at = utcnow()
        session.add(row)


def test_what_is_set_is_shown_and_the_rest_stays(catalog: Catalog) -> None:
    set_project(catalog, "vision", owners=["bob", "ann"], weight=2, max_gpus=8)
    set_project(catalog, "vision", max_trials=4, max_gpus=None, gpu_hours=1000)
    set_project(catalog, "*", max_trials=64)
    whole, line = list_projects(catalog)
    assert (whole.name, whole.max_trials) == ("*", 64)
    assert line == show_project(catalog, "vision")
    assert (line.owners, line.weight, line.max_trials, line.max_gpus, line.gpu_hours) == (
        ["ann", "bob"],
        2.0,
        4,
        None,
        1000.0,
    )


def test_a_project_that_only_has_sweeps_is_shown_with_the_defaults(catalog: Catalog) -> None:
    add_sweep(catalog, "vision")
    line = show_project(catalog, "vision")
    assert (line.weight, line.max_trials, line.owners, line.searching) == (1.0, None, [], 0)


def test_a_sweep_that_is_out_of_gpu_hours_waits_for_that_until_it_has_ended(catalog: Catalog) -> None:
    add_sweep(catalog, "vision")
    with catalog.write() as session:
        row = session.get_one(SweepRow, "vision-1")
        row.status = "searching"
        row.out_of_gpu_hours = "project vision has used its 5 GPU-hours"
    assert show_project(catalog, "vision").waiting == {"vision-1": "project vision has used its 5 GPU-hours"}
    for status, why in (("searching", "project vision has used its 5 GPU-hours"), ("finished", None)):
        with catalog.write() as session:
            session.get_one(SweepRow, "vision-1").status = status
        assert [line.waiting for line in list_sweeps(catalog)] == [why]


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("a/b", {"weight": 1}, "project 'a/b' is not accepted: give 1-128 letters"),
        ("vision", {"weight": 0}, "weight = 0 is not accepted: give a number from 0.001 to 1000"),
        ("vision", {"weight": float("nan")}, "weight = nan is not accepted"),
        (
            "vision",
            {"max_trials": -1},
            "max_trials = -1 is not accepted: give a whole number from 0, or none",
        ),
        ("vision", {"max_gpus": 1.5}, "max_gpus = 1.5 is not accepted"),
        ("vision", {"max_gpus": 2**31}, "max_gpus = 2147483648 is not accepted"),
        ("vision", {"gpu_hours": float("inf")}, "gpu_hours = inf is not accepted"),
        ("vision", {"owners": [""]}, "owners = '' is not accepted: give names"),
        ("vision", {}, "nothing is given for project 'vision': give owners, weight"),
        ("*", {"weight": 2}, "weight is not accepted for '*', all projects together"),
        ("old", {"weight": 2}, "project 'old' is called 'new' now"),
    ],
)
def test_a_wrong_value_is_one_error_and_nothing_is_set(
    catalog: Catalog, name: str, settings: dict[str, Any], said: str
) -> None:
    set_project(catalog, "old", weight=3)
    rename_project(catalog, "old", "new")
    with pytest.raises(InvalidInput) as refused:
        set_project(catalog, name, **settings)
    assert str(refused.value).startswith(said)
    assert [(line.name, line.weight) for line in list_projects(catalog)] == [("new", 3.0)]


def test_a_rename_keeps_what_was_set_and_all_names(catalog: Catalog) -> None:
    set_project(catalog, "old", weight=3)
    set_project(catalog, "another", weight=3)
    rename_project(catalog, "old", "new")
    assert show_project(catalog, "old") == show_project(catalog, "new")
    with catalog.read() as session:
        assert names_of(session, "old") == ["new", "old"]
        assert (
            all_names_of(session, ["old", "nobody"])
            == all_names_of(session, ["nobody", "new"])
            == ["new", "nobody", "old"]
        )
        assert all_names_of(session, []) == []
    rename_project(catalog, "new", "old")  # and back
    with catalog.read() as session:
        assert session.get_one(ProjectRow, "old").former_names == ["new"]


@pytest.mark.parametrize(
    ("name", "new", "error", "said"),
    [
        ("nobody", "new", NotFound, "no project 'nobody' in the catalog"),
        ("vision", "nlp", AlreadyExists, "new = 'nlp' is not accepted: project 'nlp' has, or had, that name"),
        (
            "vision",
            "sweeps",
            AlreadyExists,
            "new = 'sweeps' is not accepted: there are sweeps or runs of a project of that name",
        ),
        (
            "vision",
            "scripts",
            AlreadyExists,
            "new = 'scripts' is not accepted: there are sweeps or runs of a project of that name",
        ),
        (
            "vision",
            "tracked",
            AlreadyExists,
            "new = 'tracked' is not accepted: there are sweeps or runs of a project of that name",
        ),
        ("vision", "a b", InvalidInput, "project 'a b' is not accepted"),
        ("*", "all", InvalidInput, "project = '*' is not accepted"),
    ],
)
def test_a_rename_to_what_there_is_or_of_what_there_is_not_is_refused(
    catalog: Catalog, name: str, new: str, error: type[HalvingError], said: str
) -> None:
    set_project(catalog, "vision", weight=1)
    set_project(catalog, "nlp", weight=1)
    add_sweep(catalog, "sweeps")
    with catalog.write() as session:
        session.add(
            RunRow(
                project="scripts",
                run="a",
                status="finished",
                started=0.0,
                attempt=1,
                revision=1,
                look_again=0.0,
                signature="",
            )
        )
        session.add(
            ExperimentRow(
                name="t", project="tracked", stage="active", artifacts="", created=0, updated=0, tags={}
            )
        )
    with pytest.raises(error) as refused:
        rename_project(catalog, name, new)
    assert str(refused.value).startswith(said)
