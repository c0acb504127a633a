"""The benchmarks' harness: what it works out of measured times, and the page.

Each part itself is run in test_parts.py.
"""

import os
import signal
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest

from benchmarks import mlflow_server, report
from benchmarks.__main__ import main
from benchmarks.machine import CHECKOUT, ChildFailed, in_child
from benchmarks.peers.features_harness import look_up
from benchmarks.peers.harness import percentiles
from benchmarks.peers.installs import environment
from benchmarks.results import Part, Table, Target, load, number, spread
from benchmarks.stores import gauge, loss, metric_bytes, write_run


@pytest.mark.slow
def test_a_part_that_breaks_in_its_own_code_does_not_take_the_others_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no rounds")

    monkeypatch.setattr("benchmarks.durable.in_child", breaks)
    monkeypatch.setattr(
        "benchmarks.startup.measure",
        lambda _: Part("startup", "Importing", "How.", tables=[Table(["s"], [["1"]])]),
    )
    arguments = [
        "durable",
        "startup",
        "--quick",
        "--folder",
        str(tmp_path / "bench"),
        "--out",
        str(tmp_path / "page.md"),
    ]
    assert main(arguments) == 1
    page = (tmp_path / "page.md").read_text()
    assert "Not measured (`durable`): ZeroDivisionError: no rounds" in page
    assert "## Importing" in page


@pytest.mark.slow
def test_a_part_that_cannot_be_measured_here_leaves_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    arguments = [
        "cluster",
        "--quick",
        "--folder",
        str(tmp_path / "bench"),
        "--out",
        str(tmp_path / "page.md"),
    ]
    assert main(arguments) == 0
    assert "Not measured (`cluster`): Kubernetes: KUBECONFIG is not set" in (tmp_path / "page.md").read_text()
    Part("cluster", "A run in Kubernetes' API", "", tables=[Table(["threads"], [["1"]])]).save(
        tmp_path / "bench" / "quick"
    )
    assert main(arguments) == 0
    assert "| 1 |" in (tmp_path / "page.md").read_text()
    assert load(tmp_path / "bench" / "quick" / "cluster.json").tables


@pytest.mark.service
@pytest.mark.slow
def test_a_run_that_is_ended_leaves_no_server_and_no_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "outage", "--quick", "--folder", str(tmp_path / "bench")]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "outage: measuring\n"
        work = tmp_path / "bench" / "work"
        until = time.monotonic() + 60
        while not list(work.glob("*/*")) and time.monotonic() < until:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert list(work.iterdir()) == []


def test_a_trackers_process_gets_no_settings_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "MLFLOW_TRACKING_URI", "PIP_CONSTRAINT", "PYTHONPATH"):
        monkeypatch.setenv(name, "mine")
    variables = environment(tmp_path)
    assert "mine" not in variables.values()
    assert variables["WANDB_MODE"] == "offline"
    assert Path(variables["HOME"]).is_relative_to(tmp_path)
    assert variables["PATH"] == os.environ["PATH"]


def test_percentiles_are_those_of_the_calls_in_microseconds() -> None:
    figures = percentiles(array("q", [1_000_000 * (place + 1) for place in range(1000)]))
    # What reading the clock takes is subtracted: some ten nanoseconds.
    assert [round(figures[name] / 1000) for name in ("p50", "p99", "p99.9", "max")] == [501, 991, 1000, 1000]
    assert figures["max"] < 1_000_000


@pytest.mark.slow
def test_the_seconds_of_a_process_are_counted_from_its_start() -> None:
    began = time.perf_counter()
    figures = in_child("benchmarks.peers.features_harness:usage_of_process")
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert figures["cpu"] / 2 < figures["wall"] < time.perf_counter() - began + 2 * tick


def test_a_lookup_that_is_answered_wrongly_is_counted() -> None:
    def cities(answer: object) -> list[str]:
        entities = answer if isinstance(answer, list) else [answer]
        return [f"city {entity['user'] % 1000 if entity['user'] else 'none'}" for entity in entities]

    assert look_up(dict, list, cities, 1_000_000, 10)["missing"] == 0
    assert look_up(dict, list, cities, 1, 10)["missing"] == 10 + 20


def test_a_segment_that_is_written_directly_is_one_that_the_sdk_reads(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from halving.metrics.manifest import run_files
    from halving.store.store import Store

    write_run(tmp_path, "run", {"b": loss, "a": gauge(30, 80, 1, 0.5)}, 100, 3)
    files = run_files(Store(tmp_path), "bench", "run")
    tables = [pq.read_table(tmp_path / name) for name in files.segments]
    assert [name.rpartition("/")[2] for name in files.segments] == [
        f"0001-{number:06d}.parquet" for number in range(3)
    ]
    assert sorted(step for table in tables for step in table["step"].to_pylist()) == sorted(
        [*range(100), *range(100)]
    )
    assert all(table["key"].to_pylist() == sorted(table["key"].to_pylist()) for table in tables)
    readings = {
        value
        for table in tables
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
        if key == "a"
    }
    assert readings <= {float(value) for value in range(30, 81)}
    assert metric_bytes(tmp_path, "run")["live"] == sum(
        (tmp_path / name).stat().st_size for name in files.segments
    )


def test_a_target_is_held_to_the_median_in_its_direction() -> None:
    assert Target("x", "s", [1.0, 2.0, 9.0], 2.0).met
    assert not Target("x", "s", [1.0, 2.1, 2.2], 2.0).met
    assert Target("x", "1/s", [1.0, 2.0, 9.0], 2.0, at_most=False).met
    assert not Target("x", "1/s", [1.9], 2.0, at_most=False).met


def test_the_page_says_which_targets_were_missed_and_what_was_not_measured(tmp_path: Path) -> None:
    part = Part(
        "log",
        "Latency",
        "How.",
        [Target("speed", "s", [3.0], 2.0)],
        [Table(["a"], [["x|y"]], "T", "N")],
        ["no disk"],
        {"date": "today"},
    )
    part.save(tmp_path)
    assert load(tmp_path / "log.json") == part
    page = report.page([part])
    assert "| speed | ≤ 2.00 s | 3.00 s | **no** | `log` |" in page
    assert "- Not measured (`log`): no disk" in page
    assert "| x\\|y |" in page


def test_numbers_have_three_digits_and_rounds_their_spread() -> None:
    assert [number(value) for value in (0, 0.012345, 1.5, 45.67, 999.9, 12345.6)] == [
        "0",
        "0.0123",
        "1.50",
        "45.7",
        "1,000",
        "12,300",
    ]
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)"
    assert spread([3.0]) == "3.00"


@pytest.mark.slow
def test_a_process_that_fails_is_named_by_its_last_words() -> None:
    with pytest.raises(ChildFailed, match="no_such"):
        in_child("benchmarks.log:no_such")
    assert in_child("json:loads", s="[1]") == [1]


def test_another_servers_different_answers_are_counted_and_its_time_is_a_ratio() -> None:
    def answer_of(seconds: float, value: str) -> dict[str, object]:
        answers = {"run": [value], "artifact": ["a", "a"], "searched": value}
        return {"seconds": {"search, no filter": [seconds]}, "answers": answers}

    rounds = {
        "Halving": [answer_of(0.1, "x"), answer_of(0.1, "x")],
        "MLflow, 1 worker": [answer_of(0.2, "y"), answer_of(0.4, "x")],
    }
    assert mlflow_server.equal(rounds).rows == [["run", "4", "1"], ["artifact", "4", "0"]]
    assert mlflow_server.times(rounds, "3").rows[0][-1] == "3.00x"
    (target,) = mlflow_server.targets(rounds, "MLflow, 1 worker")
    assert target.values == [2.0, 4.0]
    assert target.met
