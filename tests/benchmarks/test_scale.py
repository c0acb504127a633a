"""The benchmarks of scale, at tiny sizes: full catalogs, clients, requests to an object store, ticks."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from benchmarks import catalog, catalog_peers, cluster_api, dagster_runs, objects, outage, ten_thousand
from benchmarks.catalog_fill import fill
from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child
from benchmarks.no_launch import NoLaunch
from benchmarks.results import Part
from resources.catalog import Catalog
from resources.execution.stream_watch import OBJECT_STORE_LOOK_SECONDS
from resources.scheduling.assignment import Assignment
from resources.scheduling.leases import HEARTBEAT_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.search.state import Status

SIZES: dict[str, Any] = {"sweeps": 2, "known": 60, "running": 6, "more": 30}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


def test_a_filled_catalog_holds_searches_that_go_on(url: str) -> None:
    first, second = fill(url, **SIZES)
    for sweep in (first, second):
        scheduler = Scheduler(Catalog(url), sweep)
        state = scheduler.state()
        assert (len(state.trials), state.running, len(scheduler.claimed())) == (60, 6, 6)
        assert {trial.status for trial in state.trials} == {Status.RUNNING, Status.PAUSED, Status.COMPLETED}
        assert isinstance(scheduler.next_work("worker"), Assignment)
    assert len(fill(url, **{**SIZES, "sweeps": 1}, first=2)) == 1


def test_a_client_beats_and_asks_at_the_rates_that_it_was_given_and_then_without_a_pause(url: str, tmp_path: Path) -> None:
    (sweep,) = fill(url, **{**SIZES, "sweeps": 1})
    paced, saturated = {"writes": 0.02, "calls": 0.05, "seconds": 2.0}, {"writes": 0.0, "calls": None, "seconds": 0.5}
    given = {"ours": url, "sweep": sweep, "clients": 1, "writer": "heartbeat", "stages": [paced, saturated]}
    with_calls, alone = catalog.client(str(tmp_path), given, place=0)
    # Arrivals are random, 100 and 40 on average; a slow machine does fewer of them, none does more than came.
    assert 0 < len(with_calls["write"]) < 200
    assert with_calls["next"]
    assert with_calls["decision"]  # at least one for each trial that was taken, but for the last one
    assert len(with_calls["next"]) <= len(with_calls["decision"]) + 1
    assert len(with_calls["next"]) + len(with_calls["decision"]) < 100
    assert alone["write"]
    assert alone["next"] == alone["decision"] == []


def test_optunas_storage_takes_the_same_calls(url: str, tmp_path: Path) -> None:
    study = catalog_peers.fill(url, trials=5, running=2)
    stages = [{"writes": 0.05, "calls": 0.05, "seconds": 1.0}]
    (found,) = catalog.client(str(tmp_path), {"theirs": url, "study": study, "clients": 1, "writer": "optuna", "stages": stages}, place=0)
    assert found["write"]
    assert len(found["next"]) - len(found["decision"]) in (-1, 0, 1)


def test_the_promise_is_held_to_one_load_of_heartbeats_and_calls_together() -> None:
    promised, full = catalog.LOADS[1:]
    assert promised.heartbeats + catalog.CALLS >= catalog.WRITES == 2_000
    assert full.heartbeats == pytest.approx(10_000 / HEARTBEAT_SECONDS)
    seconds = {"seconds": 2.0}
    rounds = [[{"write": [0.001] * 4_000, "next": [0.004] * 99 + [wait], "decision": [0.002], **seconds}] for wait in (0.5, 0.008, 0.006)]
    writes, waits = catalog._promised(rounds, 16)
    assert (writes.met, writes.bound, writes.values) == (True, 2_000, [2_050.5] * 3)
    assert (waits.median, waits.met, waits.bound) == (8.0, True, 10)
    late = [[{"write": [0.001] * 2_000, "next": [], "decision": [], **seconds}]]
    writes, waits = catalog._promised(late, 16)
    assert (writes.met, waits.met) == (False, False)


def test_a_client_that_is_left_alone_gives_up(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_WAIT_SECONDS", 0.2)
    with pytest.raises(TimeoutError, match="1 of 2 clients were ready"):
        catalog._meet(tmp_path, "ready-0-", 0, 2)


def test_a_segment_is_one_write_and_one_look_in_an_object_store(tmp_path: Path) -> None:
    found = in_child("benchmarks.objects:requests", folder=str(tmp_path), flushes=2)
    assert found["a segment"] == [2, {"PUT": 2, "HEAD": 2}]
    assert found["the next look, nothing new"][1].keys() == {"LIST"}
    assert sum(found["opening a run"][1].values()) <= 12


@pytest.mark.parametrize("mix", objects.MIXES)
def test_longer_waits_make_smaller_points(mix: str, tmp_path: Path) -> None:
    assert len(objects.MIXES[mix]) == objects.SERIES
    short, long = (objects.one(str(tmp_path / str(wait)), mix, wait, 60) for wait in (5, 60))
    assert short["live"] > long["live"] > long["full"] > 0


def test_every_sensor_ticks_twice_and_trials_that_end_are_replaced(url: str, tmp_path: Path) -> None:
    sweeps = fill(url, **SIZES, driver="sensors", places=7)
    (tmp_path / "dagster.yaml").write_text((CHECKOUT / "dagster.yaml").read_text())
    variables = {"DAGSTER_HOME": str(tmp_path), "HALVING_ROOT": str(tmp_path / "root"), "HALVING_CATALOG": url}
    found = in_child("benchmarks.dagster_ticks:two_ticks", sweeps=sweeps, variables=variables)
    assert list(found) == ["start_trials", "retry_crashed_trials", "stop_diverged_trials", "finish_sweeps"]
    assert found["start_trials"][1] == "2, 2"  # runs requested: the one free place of each sweep, twice
    assert all(second > 0 for seconds, _ in found.values() for second in seconds)


def test_the_launcher_that_starts_nothing_is_configured_by_its_name() -> None:
    launcher = {"module": "benchmarks.no_launch", "class": "NoLaunch", "config": {"seconds": 0.5}}
    with dg.DagsterInstance.local_temp(overrides={"run_launcher": launcher}) as instance:
        assert isinstance(instance.run_launcher, NoLaunch)


def test_a_block_of_dagsters_part_that_breaks_is_named_and_the_others_go_on() -> None:
    part = Part("dagster", "", "")

    def breaks() -> int:
        raise OSError("the server closed the connection")

    assert dagster_runs._tried(part, "ticks", breaks) is None
    assert dagster_runs._tried(part, "launches", lambda: 3) == 3
    assert part.missing == ["ticks: OSError: the server closed the connection"]


def test_a_daemon_that_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = dagster_runs._Instance(tmp_path, "postgresql+psycopg://nobody@127.0.0.1:1/none", "sqlite://")
    monkeypatch.setattr(backend, "_count", lambda _: 0)
    backend.variables["DAGSTER_HOME"] = str(tmp_path / "nowhere")  # which Dagster refuses
    with pytest.raises(ChildFailed, match=r"0 of 1 when the daemon ended with exit status [1-9]\d*; .*nowhere"), backend.daemon(most=0):
        backend.wait("SELECT", 1)


def test_what_a_request_to_an_s3_that_refuses_takes_is_found() -> None:
    found = outage.requests("refused", 1)
    assert all(0 < seconds < 30 for each in found.values() for seconds in each)


def test_without_a_cluster_its_part_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert cluster_api.measure(Setting(tmp_path, tmp_path, quick=True)).missing == ["Kubernetes: KUBECONFIG is not set"]


class Twos(ten_thousand.Measured):
    """As if every figure had been measured as 2, but for what is given."""

    def __init__(self, **instead: float) -> None:
        self._instead = {
            "M points/s": 1.0,
            "KB kept": 10.0,
            "1": 5.0,
        } | instead

    def cell(self, part: str, row: str, column: str, table: str = "", *, also: str = "") -> float:
        return self._instead.get(column, self._instead.get(row, 2.0))


def test_the_page_of_scale_is_worked_out_from_kept_results_and_names_a_part_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ten_thousand.figures(Twos())
    assert found["points"] == 1e6
    assert found["attempts"] == pytest.approx(10_000 / 900)
    page = ten_thousand.page(found)
    assert "| S3, writes |" in page
    assert "{" not in page
    assert ten_thousand.main(["--results", str(tmp_path), "--out", str(tmp_path / "scale.md")]) == 1
    assert "run python -m benchmarks log" in capsys.readouterr().err
    assert not (tmp_path / "scale.md").exists()


def test_looks_are_counted_as_often_as_workers_look_and_each_segment_is_read_by_one_of_them() -> None:
    found = ten_thousand.figures(Twos(**{"the next look": 3.0, "a first look at 20 segments": 60.0}))
    looks = 900 / OBJECT_STORE_LOOK_SECONDS
    assert found["looks_writes"] == pytest.approx(3 * looks)
    assert found["looks_reads"] == pytest.approx(3 * looks + 3 * found["segments"])


def test_what_dagster_writes_and_keeps_is_counted_as_it_is_configured_in_production() -> None:
    settings = yaml.safe_load((CHECKOUT / "deploy/kubernetes/base/dagster.yaml").read_text())
    found = ten_thousand.figures(Twos())
    assert found["logs_writes"] == pytest.approx(900 / settings["compute_logs"]["config"]["upload_interval"])
    ended_for = settings["run_launcher"]["config"]["run_k8s_config"]["job_spec_config"]["ttl_seconds_after_finished"]
    assert found["ended_jobs"] == pytest.approx(ended_for * 10_000 / 900)


def test_a_month_is_the_sum_of_its_rows_with_the_checkpoints_that_nobody_deletes() -> None:
    found = ten_thousand.figures(Twos())
    rows = [found[name] for name in found if name.startswith("dollars_")]
    assert found["dollars"] == pytest.approx(sum(rows))
    assert found["ended_tb_month"] == pytest.approx(found["attempts"] * ten_thousand.MONTH * ten_thousand.CHECKPOINT_GB / 1000)
    assert all(price.source for price in ten_thousand.PRICES.values())


def test_a_sentence_of_the_page_that_the_figures_contradict_stops_it() -> None:
    with pytest.raises(ten_thousand.Contradicted, match="a warm sensor's tick stays below its 60 s"):
        ten_thousand.figures(Twos(**{"next tick, s": 61.0}))


def test_walls_come_in_the_order_of_the_trials_at_which_they_come() -> None:
    few, many = (ten_thousand.figures(Twos(**{"Halving: a heartbeat": here})) for here in (10.0, 10_000.0))
    assert ten_thousand.walls(few)[0][:2] == (10 * HEARTBEAT_SECONDS, "heartbeats, Postgres and its clients on 2 cores")
    assert "heartbeats" not in ten_thousand.walls(many)[0][1]
    assert [trials for trials, _, _ in ten_thousand.walls(many)] == sorted(trials for trials, _, _ in ten_thousand.walls(many))


def test_segments_are_counted_as_the_sdk_spaces_them() -> None:
    assert ten_thousand.segments_of(100) == 20
    assert 69 < ten_thousand.segments_of(1_200) < 71
    assert ten_thousand.segments_of(4_800) == pytest.approx(ten_thousand.segments_of(1_200) + 60)
