"""Where the time of a training went, by ``halving trial``, the API and the report.

The trainings are real, and each waits for one thing.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from halving.cli.main import main
from resources.analysis.training_run import training_run
from resources.backend import Backend
from resources.evaluation.report import evaluate_sweep
from resources.sweep_spec import parse_spec
from tests.backends import SMALL
from tests.resources.execution.worked_sweeps import WorkedSweep

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gangs")]
ONE_EPOCH = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 1, "reduction_factor": 3}}
ADVICE = {
    "wait_for_data": (1, "waiting for data", "it waits for data: prepare batches in processes"),
    "exchange": (
        2,
        "collectives",
        "its ranks wait for each other or for the network: give each more work between two collectives",
    ),
    "save_much": (1, "saves", "it writes checkpoints: let run.save decide how often"),
    "compute_unevenly": (
        3,
        "collectives",
        "most of its ranks wait for another one; rank 2 is a straggler: it takes ",
    ),
}


@dataclass(frozen=True)
class Said:
    """What people see of a training.

    Attributes:
        text, data: what ``halving trial`` prints, without and with ``--json``.
        api: ``time_spent`` of the API.
        page: the report, as text without tags.
    """

    text: str
    data: dict[str, Any]
    api: dict[str, Any]
    page: str


@pytest.fixture
def show_trial(backend: Backend, capsys: pytest.CaptureFixture[str]) -> Callable[[str, int], Said]:
    """Train one trial in so many processes, to its end and to its report."""

    def train(trainable: str, processes: int) -> Said:
        spec = {
            **SMALL,
            "trainable": f"tests.gang_trainables:{trainable}",
            "max_trials": 1,
            "strategy": ONE_EPOCH,
            "gates": [],
        }
        sweep = WorkedSweep(backend, parse_spec({**spec, "resources": {"processes": processes}})).work().sweep
        report = evaluate_sweep(backend.store, backend.catalog, sweep)
        capsys.readouterr()
        printed = []
        for options in ([], ["--json"]):
            assert main(["trial", f"{sweep}.0000", "--root", backend.store.root, *options]) == 0
            printed.append(capsys.readouterr().out)
        spent = training_run(backend.catalog, backend.store, "small", f"{sweep}.0000").time_spent
        assert spent is not None
        html = backend.store.get_blob(report.html_digest).decode()
        body = html.partition("<h3>Where its time went</h3>")[2].partition("<h3>")[0]
        return Said(
            printed[0], json.loads(printed[1]), spent, " ".join(re.sub(r"<[^>]+>", " ", body).split())
        )

    return train


@pytest.mark.parametrize("trainable", ADVICE)
def test_page_report_and_command_say_why_a_training_waits(
    show_trial: Callable[[str, int], Said], trainable: str
) -> None:
    processes, share, advice = ADVICE[trainable]
    said = show_trial(trainable, processes)
    busy = f"is busy {said.data['time_spent']['busy']:.0f} % of the time, below 90 %: "
    assert f"it {busy}{advice}" in said.text
    assert f"It {busy}{advice}" in said.page
    assert f"{busy}{advice}" in said.api["warning"]
    assert said.data["time_spent"] == said.api
    line = next(line for line in said.text.splitlines() if line.startswith("where its time went: computing "))
    shares = dict(re.findall(r"(\w[\w ]*?) (\d+) %", line.removeprefix("where its time went: ")))
    assert share in shares
    for name, percent in shares.items():
        assert name in said.page
        assert f"{percent} %" in said.page
    assert (said.data["time_spent"]["straggler"] or {}).get("rank") == (
        2 if trainable == "compute_unevenly" else None
    )
    assert said.data["time_spent"]["gpu"] is None


def test_of_a_training_that_computes_on_cpus_nothing_is_said_to_be_wrong(
    show_trial: Callable[[str, int], Said],
) -> None:
    said = show_trial("compute", 1)
    assert said.api["warning"] is None
    assert "where its time went: computing " in said.text
    assert "GPU" not in said.text.partition("rung")[0]
    assert re.fullmatch(r"computing saves \d+ % \d+ %", said.page.partition(" The ")[0]), said.page
    assert "below 90 %" not in said.text + said.page
