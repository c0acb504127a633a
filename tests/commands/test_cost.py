"""What ``halving cost`` shows, for people and as JSON."""

import argparse
import io
import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import halving
from commands.cost import _BY, add_cost_command, run_cost
from halving.errors import InvalidInput, NotFound
from resources.analysis.costs.sums import BY
from resources.backend import Backend
from resources.sweep_spec import SweepSpec
from tests.searches import search


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    return {"score": params["x"] * epochs}


def read_cost(
    backend: Backend, of: str | None, by: str | None = None, *, as_json: bool = False, kind: str = "of"
) -> str:
    names = {"of": None, "project": None, "model": None, kind: of}
    with redirect_stdout(io.StringIO()) as output:
        assert run_cost(Namespace(root=backend.store.root, by=by, json=as_json, **names)) == 0
    return output.getvalue()


def test_a_sweep_a_name_and_everything_cost_the_same_where_there_is_one_sweep(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    sweep = search(
        backend, small_spec(max_trials=6, resources={"gpus": 1}), score, seconds=600.0, curves=True
    )
    whole = [json.loads(read_cost(backend, of, as_json=True))["cost"] for of in (sweep, "small", None)]
    assert whole == [pytest.approx(whole[0])] * 3
    assert whole[0] > 0
    text = read_cost(backend, sweep)
    for said in (f"{sweep}: ", " USD (prices of ", "saved by early stopping", "pruned trials", "the winner"):
        assert said in text
    assert "storage of small" in read_cost(backend, "small")
    months = json.loads(read_cost(backend, sweep, "month", as_json=True))
    assert sum(line["cost"] for line in months["lines"]) == pytest.approx(whole[0])
    assert read_cost(backend, None, "outcome").count("paused at a rung") == 1


def test_the_command_takes_whatever_the_sums_can_tell_apart() -> None:
    assert _BY == BY


def test_runs_of_scripts_are_counted_as_they_are_now_and_the_answer_says_how(backend: Backend) -> None:
    with halving.init(project="notes", root=backend.store.root, system_metrics=None):
        data = json.loads(read_cost(backend, "notes", as_json=True))
        assert (data["attempts"], data["runs"]["attempts"], data["unread"]) == (1, 1, 0)
        assert data["runs"]["estimated"] == data["runs"]["cost"]
        assert "for what runs or was killed, until its last sign of life" in read_cost(backend, "notes")
    (backend.store.folder or Path()).joinpath("runs/project=notes/r").mkdir()
    (backend.store.folder or Path()).joinpath("runs/project=notes/r/record.json").write_text("{")
    text = " ".join(read_cost(backend, None).split())
    assert "all sweeps and runs: " in text
    assert "runs of scripts and reruns: " in text
    assert " USD at most, as if they used all GPUs that they could see, or else all cores" in text
    assert "not counted: runs that the index does not have yet: 1; halving index" in text
    assert "storage of notes" in text


def test_where_nothing_was_trained_nothing_is_listed(backend: Backend) -> None:
    assert read_cost(backend, None).startswith("all sweeps and runs: 0.00 USD")
    assert "cost" not in read_cost(backend, None)


def test_a_name_of_a_project_and_of_anothers_model_is_refused_without_its_kind(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    of_model = search(
        backend, small_spec(name="vision", project="research", max_trials=1), score, seconds=60.0
    )
    of_project = search(
        backend, small_spec(name="other", project="vision", max_trials=1), score, seconds=60.0
    )
    said = (
        "'vision' is not accepted: it is a project, and a model of research; say which is meant: --project "
        "vision or --model vision"
    )
    with pytest.raises(InvalidInput, match=said):
        read_cost(backend, "vision")
    for kind, sweep in (("project", of_project), ("model", of_model)):
        data = json.loads(read_cost(backend, "vision", as_json=True, kind=kind))
        assert (data["kind"], [line["name"] for line in data["lines"]]) == (kind, [sweep])
        assert f" of {kind} vision: " in read_cost(backend, "vision", kind=kind)
        with pytest.raises(NotFound, match=f"no {kind} 'visio'; close to it: vision"):
            read_cost(backend, "visio", kind=kind)


def test_a_name_that_is_the_projects_and_its_own_models_is_the_projects(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    for name in ("small", "other"):
        search(backend, small_spec(name=name, project="small", max_trials=1), score, seconds=60.0)
    costs = {
        kind: json.loads(read_cost(backend, "small", as_json=True, kind=kind))
        for kind in ("of", "project", "model")
    }
    assert [len(each["lines"]) for each in costs.values()] == [2, 2, 1]
    assert costs["of"] == costs["project"]


def test_what_is_asked_about_is_named_once() -> None:
    parser = argparse.ArgumentParser()
    add_cost_command(parser.add_subparsers())
    assert (
        vars(parser.parse_args(["cost", "-p", "vision"])).items()
        >= {"of": None, "project": "vision", "model": None}.items()
    )
    assert (
        vars(parser.parse_args(["cost", "vision"])).items()
        >= {"of": "vision", "project": None, "model": None}.items()
    )
    with pytest.raises(SystemExit):
        parser.parse_args(["cost", "vision", "--model", "vision"])
