"""What the page of scale is worked out from: arithmetic that nobody would see to be wrong."""

from pathlib import Path

import pytest
import yaml

from benchmarks import catalog, ten_thousand
from benchmarks.machine import CHECKOUT, in_child
from resources.execution.watches import OBJECT_STORE_LOOK_SECONDS
from resources.scheduling.leases import HEARTBEAT_SECONDS


def test_the_promise_is_held_to_one_load_of_heartbeats_and_calls_together() -> None:
    promised, full = catalog.LOADS[1:]
    assert promised.heartbeats + catalog.CALLS >= catalog.WRITES == 2_000
    assert full.heartbeats == pytest.approx(10_000 / HEARTBEAT_SECONDS)
    seconds = {"seconds": 2.0}
    rounds = [
        [{"write": [0.001] * 4_000, "next": [0.004] * 99 + [wait], "decision": [0.002], **seconds}]
        for wait in (0.5, 0.008, 0.006)
    ]
    writes, waits = catalog._targets(rounds, 16)
    assert (writes.met, writes.bound, writes.values) == (True, 2_000, [2_050.5] * 3)
    assert (waits.median, waits.met, waits.bound) == (8.0, True, 10)
    late = [[{"write": [0.001] * 2_000, "next": [], "decision": [], **seconds}]]
    writes, waits = catalog._targets(late, 16)
    assert (writes.met, waits.met) == (False, False)


@pytest.mark.service
@pytest.mark.slow
def test_a_segment_is_one_write_and_one_look_in_an_object_store(tmp_path: Path) -> None:
    figures = in_child("benchmarks.objects:requests", folder=str(tmp_path), flushes=2)
    assert figures["a segment"] == [2, {"PUT": 2, "HEAD": 2}]
    assert figures["the next look, nothing new"][1].keys() == {"LIST"}
    assert sum(figures["opening a run"][1].values()) <= 12


class Twos(ten_thousand.Measured):
    """As if every figure had been measured as 2, but for what is given."""

    def __init__(self, **instead: float) -> None:
        self._instead = {
            "M points/s": 1.0,
            "KB kept": 10.0,
            "attempts/s": 3.0,
            "next trials/s": 20.0,
            "1": 5.0,
        } | instead

    def cell(self, part: str, row: str, column: str, table: str = "", *, also: str = "") -> float:
        return self._instead.get(column, self._instead.get(row, 2.0))


def test_the_page_of_scale_comes_from_kept_results_and_names_a_missing_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = ten_thousand.figures(Twos())
    assert figures["points"] == 1e6
    assert figures["attempts"] == pytest.approx(10_000 / 900)
    page = ten_thousand.page(figures)
    assert "| S3, writes |" in page
    assert "{" not in page
    assert ten_thousand.main(["--results", str(tmp_path), "--out", str(tmp_path / "scale.md")]) == 1
    assert "run python -m benchmarks log" in capsys.readouterr().err
    assert not (tmp_path / "scale.md").exists()


def test_looks_count_as_often_as_workers_look_and_each_segment_is_read_by_one() -> None:
    figures = ten_thousand.figures(Twos(**{"the next look": 3.0, "a first look at 20 segments": 60.0}))
    looks = 900 / OBJECT_STORE_LOOK_SECONDS
    assert figures["looks_writes"] == pytest.approx(3 * looks)
    assert figures["looks_reads"] == pytest.approx(3 * looks + 3 * figures["segments"])


def test_what_dagster_writes_and_keeps_is_counted_as_it_is_configured_in_production() -> None:
    settings = yaml.safe_load((CHECKOUT / "deploy/kubernetes/base/dagster.yaml").read_text())
    figures = ten_thousand.figures(Twos())
    assert figures["logs_writes"] == pytest.approx(
        900 / settings["compute_logs"]["config"]["upload_interval"]
    )
    ended_for = settings["run_launcher"]["config"]["run_k8s_config"]["job_spec_config"][
        "ttl_seconds_after_finished"
    ]
    assert figures["ended_jobs"] == pytest.approx(ended_for * 10_000 / 900)


def test_a_month_sums_its_rows_with_the_checkpoints_that_the_shipped_policy_keeps() -> None:
    figures = ten_thousand.figures(Twos())
    rows = [figures[name] for name in figures if name.startswith("dollars_")]
    assert figures["dollars"] == pytest.approx(sum(rows))
    kept = yaml.safe_load((CHECKOUT / "resources/retention/default.yaml").read_text())["checkpoints"]
    day = figures["attempts"] * 86_400 * ten_thousand.CHECKPOINT_GB / 1000
    assert figures["ended_tb"] == pytest.approx(day * kept["days"])
    assert figures["best_tb_month"] == pytest.approx(day * 730 / 24 * kept["top_k"] / ten_thousand.SWEEP)
    assert figures["undeleted_tb_month"] == pytest.approx(day * 730 / 24)
    assert all(price.source for price in ten_thousand.PRICES.values())


def test_workers_for_all_attempts_are_given_and_a_late_compaction_stops_the_page() -> None:
    figures = ten_thousand.figures(Twos())
    assert figures["compaction_workers"] == 15  # 4 for 3 attempts a second, of 11.1
    with pytest.raises(ten_thousand.Contradicted, match="keep up with 10,000 ended attempts an hour"):
        ten_thousand.figures(Twos(**{"attempts/s": 2.7}))


def test_a_sentence_of_the_page_that_the_figures_contradict_stops_it() -> None:
    with pytest.raises(ten_thousand.Contradicted, match="a warm sensor's tick stays below its 60 s"):
        ten_thousand.figures(Twos(**{"next tick, s": 61.0}))


def test_slow_handing_out_of_shared_trials_stops_the_page_or_is_its_wall() -> None:
    figures = ten_thousand.figures(Twos(**{"next trials/s": 12.0}))
    assert (figures["shared_next"], figures["shared_part"]) == (12, 100)
    assert [round(trials) for trials, what, _ in ten_thousand.walls(figures) if "handed out" in what] == [
        10_800
    ]
    with pytest.raises(
        ten_thousand.Contradicted, match="handed out where projects share the machines as fast as they begin"
    ):
        ten_thousand.figures(Twos(**{"next trials/s": 11.0}))


def test_walls_come_in_the_order_of_the_trials_at_which_they_come() -> None:
    few, many = (ten_thousand.figures(Twos(**{"Halving: a heartbeat": here})) for here in (10.0, 10_000.0))
    assert ten_thousand.walls(few)[0][:2] == (
        10 * HEARTBEAT_SECONDS,
        "heartbeats, Postgres and its clients on 2 cores",
    )
    assert "heartbeats" not in ten_thousand.walls(many)[0][1]
    assert [trials for trials, _, _ in ten_thousand.walls(many)] == sorted(
        trials for trials, _, _ in ten_thousand.walls(many)
    )


def test_segments_are_counted_as_the_sdk_spaces_them() -> None:
    assert ten_thousand.segments_of(100) == 20
    assert 69 < ten_thousand.segments_of(1_200) < 71
    assert ten_thousand.segments_of(4_800) == pytest.approx(ten_thousand.segments_of(1_200) + 60)
