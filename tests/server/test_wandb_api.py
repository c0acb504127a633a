"""``wandb.Api`` over a server reads the same as from the server's store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import halving
import halving.wandb as wandb
from resources.backend import Backend
from tests.server.processes import ServerProcess, server_of
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

LONG = 12_345  # more points than the API gives of a curve at once


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServerProcess]]:
    """The root of a store with three runs, and a server on it."""
    folder = tmp_path_factory.mktemp("served")
    root = str(folder / "root")
    for number in range(3):
        tags = {"name": f"fox-{number}", "even": "true"} if number % 2 == 0 else {"name": "odd"}
        params = {"lr": 0.1 / (number + 1), "opt": {"name": "adam"}}
        run = halving.init("nets", params, root, id=f"run-{number}", tags=tags, system_metrics=None)
        for step in range(4):
            run.log({"loss": number + 1 / (step + 1)}, step=step * 10)
        if number == 0:
            (folder / "notes.txt").write_text("hello")
            run.log_artifact(folder / "notes.txt", "texts/notes.txt")
            for step, value in enumerate(np.random.default_rng(0).normal(size=LONG).tolist()):
                run.log({"long": value}, step=step * 3)
            run.log({"odd": float("nan")}, step=0)
        run.finish("failed" if number == 2 else "finished")
    Backend(root=root).catalog.close()
    with server_of(root) as server:
        yield root, server


@pytest.fixture
def apis(served: tuple[str, ServerProcess], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """One that reads the store, and one that asks the server, once its index has all runs."""
    root, server = served
    monkeypatch.setenv("HALVING_ROOT", root)
    on_store = wandb.Api()
    monkeypatch.setenv("HALVING_URL", server.address)
    on_server = wandb.Api()
    wait_for(lambda: len(on_server.runs("nets")) == 3, 60, "the index has the runs")
    return on_store, on_server


@pytest.mark.parametrize(
    ("filters", "order"),
    [
        (None, "+created_at"),
        ({"state": "failed"}, "-created_at"),
        ({"config.lr": {"$lt": 0.09}}, "-summary_metrics.loss"),
        ({"tags": "even", "summary_metrics.loss": {"$gt": 1}}, "+config.lr"),
        ({"display_name": {"$regex": "^fox"}}, "-display_name"),
    ],
)
def test_a_filter_chooses_the_same_runs_over_a_server(apis: Any, filters: Any, order: str) -> None:
    stored, served = (api.runs("nets", filters, order) for api in apis)
    assert [run.id for run in served] == [run.id for run in stored] != []


def test_a_run_is_the_same_over_a_server(apis: Any) -> None:
    stored, served = (api.run("nets/run-0") for api in apis)
    for name in ("id", "name", "state", "config", "tags", "created_at", "heartbeat_at", "group"):
        assert getattr(served, name) == getattr(stored, name), name
    assert np.isnan(served.summary.pop("odd"))
    assert np.isnan(stored.summary.pop("odd"))
    assert served.summary == stored.summary
    assert served.url.endswith("/runs/nets/run-0")
    assert [project.name for project in apis[1].projects()] == ["nets"]


def test_every_point_of_a_long_curve_comes_over_a_server(apis: Any) -> None:
    stored, served = (list(api.run("nets/run-0").scan_history(keys=["long"])) for api in apis)
    assert len(served) == LONG
    assert served == stored
    window = apis[1].run("nets/run-0").scan_history(keys=["long"], min_step=300, max_step=600)
    assert [row["_step"] for row in window] == list(range(300, 600, 3))


def test_a_file_comes_over_a_server(apis: Any, tmp_path: Path) -> None:
    (file,) = apis[1].run("nets/run-0").files()
    assert (file.name, file.size) == ("texts/notes.txt", 5)
    with file.download(tmp_path) as opened:
        assert opened.read() == "hello"


def test_a_sweep_has_the_runs_of_its_trials(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALVING_ROOT", backend.store.root)
    config = {"method": "random", "metric": {"name": "loss"}, "parameters": {"lr": {"min": 0.0, "max": 1.0}}}
    sweep = wandb.sweep(config, project="nets")

    def train() -> None:
        with wandb.init():
            wandb.log({"loss": wandb.config.lr})

    wandb.agent(sweep, train, count=3)
    read = wandb.Api().sweep(f"team/nets/{sweep}")
    losses = {run.id: run.summary["loss"] for run in read.runs}
    assert len(losses) == 3
    assert read.best_run("+summary_metrics.loss").id == min(losses, key=lambda run: losses[run])
    assert wandb.Api().sweep(sweep).project == "nets"
    with pytest.raises(ValueError, match="Could not find sweep nets-1"):
        wandb.Api().sweep("nets-1")
    assert read.runs[0].sweep_name == sweep
