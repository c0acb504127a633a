"""The benchmarks' harness: the shape of what it finds and of the page. No test here looks at a time."""

import os
import signal
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest

from benchmarks import queries, report, size, training
from benchmarks.__main__ import main
from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child
from benchmarks.peers.compare import Peer, measure
from benchmarks.peers.harness import NAMES, Opened, losses, percentiles, work
from benchmarks.peers.installs import environment, install
from benchmarks.results import Part, Table, Target, load, number, spread
from benchmarks.stores import gauge, loss, metric_bytes, write_run

NOWHERE = Peer("Nowhere", "use_nowhere", "nothing", "nowhere", (("no-such-package-at-all==0",),), "nowhere")


def test_a_quick_run_writes_a_page_with_the_targets_and_the_command(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert main(["log", "durable", "startup", "recovery", "--quick", "--folder", str(tmp_path / "bench"), "--out", str(page)]) == 0
    lines = page.read_text().splitlines()
    for name, title in {"log": "## Latency", "durable": "## Durable", "startup": "## Importing", "recovery": "## Recovery"}.items():
        assert any(line.startswith(title) for line in lines)
        assert f"`python -m benchmarks {name}`" in lines
    assert sum(line.startswith("| `log()` p") for line in lines) == 6
    assert sum("| yes |" in line or "| **no** |" in line for line in lines) == 8
    kept = load(tmp_path / "bench" / "quick" / "recovery.json")
    assert kept.tables[0].rows[0][0] == "10,000"
    assert kept.tables[0].rows[0][-2:] == ["0", "0"]  # lost, twice
    assert load(tmp_path / "bench" / "quick" / "durable.json").tables[0].rows[0][-1] == "0"  # lost
    assert list((tmp_path / "bench" / "work").iterdir()) == []


def test_bytes_a_point_are_found_for_each_mix(tmp_path: Path) -> None:
    setting = Setting(tmp_path, tmp_path, quick=True)
    part = size.measure(setting)
    assert [target.bound for target in part.targets] == [3.8, 2.0]
    assert [row[0] for row in part.tables[0].rows] == list(size.MIXES)
    assert all(0 < value < 20 for target in part.targets for value in target.values)
    assert all(float(cell) > 0 for row in part.tables[0].rows for cell in row[2:])
    assert len(size.MIXES["30 noisy losses and 80 slow gauges"]) == 110


def test_every_promised_query_is_asked_of_segments_and_of_compacted_files(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    part = queries.measure(Setting(tmp_path / "work", tmp_path, quick=True))
    assert [target.bound for target in part.targets] == [0.25, 0.4, 1.5]
    promised, by_length, by_count, compaction = part.tables
    assert [row[1] for row in promised.rows] == ["3 segments", "compacted", "15 segments", "compacted"]
    asked = [(row, 3) for row in promised.rows] + [(row, 10) for row in by_length.rows] + list(zip(by_count.rows, (1, 10), strict=True))
    for row, runs in asked:  # of each curve at least half of 1,000 points
        assert 500 * runs <= int(row[-3].replace(",", "")) <= 1_000 * runs
    assert [row[1] for row in compaction.rows] == ["30,000", "150,000"]


def test_a_training_loop_is_compared_with_itself(tmp_path: Path) -> None:
    part = training.measure(Setting(tmp_path, tmp_path, quick=True))
    assert [row[0] for row in part.tables[0].rows] == list(training.LOOPS)
    assert len(part.targets) == 2
    assert all(0 < float(row[-1]) < 100 for row in part.tables[0].rows)  # the share inside log()


def test_a_page_keeps_the_parts_that_were_measured_before(tmp_path: Path) -> None:
    arguments = ["--quick", "--folder", str(tmp_path / "bench"), "--out", str(tmp_path / "page.md")]
    assert main(["--only", "startup", *arguments]) == 0
    assert main(["durable", *arguments]) == 0
    page = (tmp_path / "page.md").read_text()
    assert page.index("## Durable") < page.index("## Importing")


def test_a_part_that_breaks_is_on_the_page_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.durable.in_child", lambda *_, **__: in_child("benchmarks.durable:nothing"))
    assert main(["durable", "--quick", "--folder", str(tmp_path / "bench"), "--out", str(tmp_path / "page.md")]) == 1
    assert "Not measured (`durable`): AttributeError" in (tmp_path / "page.md").read_text()


def test_a_part_that_breaks_in_its_own_code_does_not_take_the_others_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no rounds")

    monkeypatch.setattr("benchmarks.durable.in_child", breaks)
    arguments = ["durable", "startup", "--quick", "--folder", str(tmp_path / "bench"), "--out", str(tmp_path / "page.md")]
    assert main(arguments) == 1
    page = (tmp_path / "page.md").read_text()
    assert "Not measured (`durable`): ZeroDivisionError: no rounds" in page
    assert "## Importing" in page


def test_a_part_that_cannot_be_measured_here_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    arguments = ["cluster", "--quick", "--folder", str(tmp_path / "bench"), "--out", str(tmp_path / "page.md")]
    assert main(arguments) == 0
    assert "Not measured (`cluster`): Kubernetes: KUBECONFIG is not set" in (tmp_path / "page.md").read_text()
    Part("cluster", "A run in Kubernetes' API", "", tables=[Table(["threads"], [["1"]])]).save(tmp_path / "bench" / "quick")
    assert main(arguments) == 0
    assert "| 1 |" in (tmp_path / "page.md").read_text()
    assert load(tmp_path / "bench" / "quick" / "cluster.json").tables


def test_a_run_that_is_told_to_end_leaves_no_server_and_no_files_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "outage", "--quick", "--folder", str(tmp_path / "bench")]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "outage: measuring\n"
        work = tmp_path / "bench" / "work"
        until = time.monotonic() + 60
        while not list(work.glob("*/*")) and time.monotonic() < until:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert list(work.iterdir()) == []


def test_an_unknown_part_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["lgo"])
    assert "part 'lgo' is not accepted: give some of log," in capsys.readouterr().err


def test_trackers_are_compared_with_halving_and_one_that_cannot_be_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    ours = Peer("Halving", "use_halving", "Parquet, synced", tight=30, paced=5)
    again = Peer("Halving again", "use_halving", "Parquet, synced", tight=30, paced=5)
    work_folder = tmp_path / "work"
    part = measure(Setting(work_folder, tmp_path, quick=False), [ours, again, NOWHERE])
    assert [missing.partition(":")[0] for missing in part.missing] == ["Nowhere"]
    assert "No matching distribution found for no-such-package-at-all==0" in part.missing[0]
    calls, closing = part.tables
    assert [row[0] for row in calls.rows] == ["Halving", "Halving again", "Nowhere"] * 2
    assert all(len(row) == len(table.header) for table in part.tables for row in table.rows)
    assert calls.rows[0][8] == "1.00x"
    assert closing.rows[0][-2] == "1,050 of 1,050"  # three rounds of 35 calls, ten points each
    assert closing.rows[2][1].startswith("not measured: no-such-package-at-all==0 cannot be installed here")


def test_a_quick_run_installs_nothing(tmp_path: Path) -> None:
    found = install(tmp_path / "env", NOWHERE.choices, NOWHERE.imports, allowed=False)
    assert found.python is None
    assert not (tmp_path / "env").exists()


def test_the_second_list_of_requirements_is_taken_when_the_first_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    found = install(tmp_path / "env", (("no-such-package-at-all==0",), ("pip",)), "pip")  # pip is in every environment
    assert found.python is not None
    assert found.note.startswith("no-such-package-at-all==0 cannot be installed here: ERROR: No matching distribution")
    assert found.note.endswith("Measured: pip.")
    assert install(tmp_path / "env", (("pip",),), "pip", allowed=False).python == found.python


def test_a_trackers_process_gets_no_settings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "MLFLOW_TRACKING_URI", "PIP_CONSTRAINT", "PYTHONPATH"):
        monkeypatch.setenv(name, "mine")
    variables = environment(tmp_path)
    assert "mine" not in variables.values()
    assert variables["WANDB_MODE"] == "offline"
    assert Path(variables["HOME"]).is_relative_to(tmp_path)
    assert variables["PATH"] == os.environ["PATH"]


def test_every_call_gets_ten_values_and_is_timed() -> None:
    seen: list[tuple[int, dict[str, float]]] = []
    closed: list[int] = []
    opened = Opened(lambda values, step: seen.append((step, values)), lambda: closed.append(len(seen)), int)
    result = work(opened, 50, 0.0)
    assert [step for step, _ in seen] == list(range(50))
    assert all(list(values) == NAMES for _, values in seen)
    assert [value for _, values in seen for value in values.values()] == list(losses(50))
    assert closed == [50]
    assert result["points"] == 500
    assert list(result["latency_us"]) == ["p50", "p99", "p99.9", "max"]


def test_percentiles_are_those_of_the_calls_in_microseconds() -> None:
    found = percentiles(array("q", [1_000_000 * (place + 1) for place in range(1000)]))
    # What reading the clock takes is subtracted: some ten nanoseconds.
    assert [round(found[name] / 1000) for name in ("p50", "p99", "p99.9", "max")] == [501, 991, 1000, 1000]
    assert found["max"] < 1_000_000


def test_a_segment_that_is_written_directly_is_one_that_the_sdk_reads(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from halving.metrics.manifest import run_files
    from halving.store.store import Store

    write_run(tmp_path, "run", {"b": loss, "a": gauge(30, 80, 1, 0.5)}, 100, 3)
    files = run_files(Store(tmp_path), "bench", "run")
    tables = [pq.read_table(tmp_path / name) for name in files.segments]
    assert [name.rpartition("/")[2] for name in files.segments] == [f"0001-{number:06d}.parquet" for number in range(3)]
    assert sorted(step for table in tables for step in table["step"].to_pylist()) == sorted([*range(100), *range(100)])
    assert all(table["key"].to_pylist() == sorted(table["key"].to_pylist()) for table in tables)
    readings = {
        value for table in tables for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True) if key == "a"
    }
    assert readings <= {float(value) for value in range(30, 81)}
    assert metric_bytes(tmp_path, "run")["live"] == sum((tmp_path / name).stat().st_size for name in files.segments)


def test_a_target_is_held_to_the_median_in_its_direction() -> None:
    assert Target("x", "s", [1.0, 2.0, 9.0], 2.0).met
    assert not Target("x", "s", [1.0, 2.1, 2.2], 2.0).met
    assert Target("x", "1/s", [1.0, 2.0, 9.0], 2.0, at_most=False).met
    assert not Target("x", "1/s", [1.9], 2.0, at_most=False).met


def test_the_page_says_which_targets_were_missed_and_what_was_not_measured(tmp_path: Path) -> None:
    part = Part(
        "log", "Latency", "How.", [Target("speed", "s", [3.0], 2.0)], [Table(["a"], [["x|y"]], "T", "N")], ["no disk"], {"date": "today"}
    )
    part.save(tmp_path)
    assert load(tmp_path / "log.json") == part
    page = report.page([part])
    assert "| speed | ≤ 2.00 s | 3.00 s | **no** | `log` |" in page
    assert "- Not measured (`log`): no disk" in page
    assert "| x\\|y |" in page


def test_numbers_have_three_digits_and_rounds_their_spread() -> None:
    assert [number(value) for value in (0, 0.012345, 1.5, 45.67, 999.9, 12345.6)] == ["0", "0.0123", "1.50", "45.7", "1,000", "12,300"]
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)"
    assert spread([3.0]) == "3.00"


def test_a_process_that_fails_is_named_by_its_last_words() -> None:
    with pytest.raises(ChildFailed, match="no_such"):
        in_child("benchmarks.log:no_such")
    assert in_child("json:loads", s="[1]") == [1]
