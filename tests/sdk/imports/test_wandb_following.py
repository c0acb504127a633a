"""``halving import wandb --follow``: logs that grow while they are copied."""

import itertools
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import halving
from halving import Store
from halving.errors import InvalidInput, StoreError
from halving.imports import wandb_following
from halving.imports.wandb_following import WandbFollower
from halving.metrics.segments import live_folder
from halving.query.runs import read_run
from tests.properties import examples
from tests.sdk.imports.copies import small_disk
from tests.sdk.imports.followers import GrowingLog, at_once, look, state_of
from tests.sdk.imports.wandb_files import (
    documents,
    ends_of,
    exit_record,
    history_record,
    log_of,
    logged_of,
    run_record,
    summary_record,
    write_run,
)
from tests.sdk.imports.wandb_imports import Import, age, outcomes

pytestmark = pytest.mark.usefixtures("at_once")
__all__ = ["at_once"]

RECORDS = [
    run_record("a", config={"lr": 0.1}),
    *(
        record
        for step in range(12)
        for record in (
            history_record(step, {"loss": 1 / (step + 1), "note": f"step {step}"}),
            summary_record({"loss": 1 / (step + 1)}),
        )
    ),
    history_record(12, {"big": 1.0, "text": "x" * 70_000}),
    history_record(13, {"note": "media alone"}),
    summary_record({"best": 0.9}),
    exit_record(0),
]
WHOLE = log_of(RECORDS)


def follower_of(store: Store, source: Path, said: list[str] | None = None) -> WandbFollower:
    lines = [] if said is None else said
    return WandbFollower(store, str(source), None, lines.append)


def growing(folder: Path, run: str = "a", content: bytes = WHOLE) -> GrowingLog:
    return GrowingLog(folder / f"offline-run-20231114_221320-{run}" / f"run-{run}.wandb", content)


def test_each_look_shows_what_was_written_before_it(tmp_path: Path, store: Store) -> None:
    log = growing(tmp_path / "wandb")
    follower = follower_of(store, tmp_path / "wandb")
    steps = -1
    for record, end in zip(RECORDS, ends_of(RECORDS), strict=True):
        log.grow(end - 1)
        look(follower)
        losses = [step for key, step, _ in logged_of(store, "digits", "a") if key == "loss"]
        assert losses == list(range(steps + 1)), "a record is not read before it is whole"
        log.grow(end)
        look(follower)
        steps += record.find(b"_timestamp") >= 0 and record.find(b"loss") >= 0
        losses = [step for key, step, _ in logged_of(store, "digits", "a") if key == "loss"]
        assert losses == list(range(steps + 1))
    assert steps == 11
    assert read_run(store, "digits", "a").status == "finished"


@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(cuts=st.lists(st.integers(0, len(WHOLE)), max_size=6), restarts=st.sets(st.integers(0, 6)))
def test_a_followed_run_is_the_one_that_an_import_makes_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], restarts: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("followed")
    followed = Store(folder / "followed")
    log = growing(folder / "wandb")
    follower = follower_of(followed, folder / "wandb")
    for number, cut in enumerate([*sorted(cuts), len(WHOLE)]):
        if number in restarts:  # as after a kill: the new one knows only what the store says
            follower = follower_of(followed, folder / "wandb")
        log.grow(max(cut, log.written))
        look(follower)
    whole = Store(folder / "whole")
    once = follower_of(whole, folder / "wandb")
    look(once)
    once.stop()
    assert state_of(followed, "digits", "a") == state_of(whole, "digits", "a")
    follower.stop()
    if not restarts - {0}:
        assert +follower.taken == +once.taken
        assert follower.skipped.reasons == once.skipped.reasons


def test_bytes_that_were_read_are_not_read_again(tmp_path: Path, store: Store) -> None:
    log = growing(tmp_path / "wandb")
    middle = ends_of(RECORDS)[9]
    log.grow(middle)
    follower = follower_of(store, tmp_path / "wandb")
    look(follower)
    with log.path.open("r+b") as file:
        file.seek(7)
        file.write(os.urandom(middle - 7))
    log.grow()
    look(follower)
    follower.stop()
    losses = [step for key, step, _ in logged_of(store, "digits", "a") if key == "loss"]
    assert losses == list(range(12))
    assert follower.skipped.reasons == Counter()


def test_a_look_at_finished_runs_asks_the_disk_once(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wandb"
    for number in range(50):
        path = write_run(
            folder, f"r{number}", [run_record(f"r{number}"), history_record(0, {"loss": 1}), exit_record(0)]
        )
        age(path)
    past = folder.stat().st_mtime - 60
    os.utime(folder, (past, past))
    follower = follower_of(store, folder)
    look(follower)
    assert len(follower.rows) == 50
    calls: Counter[str] = Counter()
    stat = Path.stat

    def count(path: Path, **named: bool) -> os.stat_result:
        calls["stat"] += 1
        return stat(path, **named)

    monkeypatch.setattr(Path, "stat", count)
    monkeypatch.setattr(Path, "open", lambda *_: calls.update(["open"]))
    monkeypatch.setattr(os, "scandir", lambda *_: calls.update(["scandir"]))
    follower.look()
    monkeypatch.undo()
    assert calls == {"stat": 1}


def test_a_run_that_appears_is_taken_and_a_resumed_one_goes_on(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "wandb"
    folder.mkdir()
    follower = follower_of(store, folder)
    look(follower)
    growing(folder).grow()
    look(follower)
    assert read_run(store, "digits", "a").status == "finished"
    later = log_of([run_record("a", started=1_700_000_900), history_record(0, {"loss": 9}), exit_record(1)])
    resumed = GrowingLog(folder / "offline-run-20231114_231320-a" / "run-a.wandb", later)
    resumed.grow()
    growing(folder, "b", log_of([run_record("b"), history_record(3, {"loss": 3})])).grow()
    look(follower)
    info = read_run(store, "digits", "a")
    assert [attempt.status for attempt in info.attempts] == ["finished", "failed"]
    assert logged_of(store, "digits", "b") == [("loss", 3, "3.0")]
    assert read_run(store, "digits", "b").status == "running"


def test_params_follow_the_config_and_files_come_with_the_end(tmp_path: Path, store: Store) -> None:
    first = [run_record("a", config={"lr": 0.1}), history_record(0, {"loss": 1})]
    second = [*first, run_record("a", config={"lr": 0.2, "late": 5}), history_record(1, {"loss": 1})]
    log = growing(tmp_path / "wandb", content=log_of([*second, exit_record(0)]))
    files = log.path.parent / "files"
    files.mkdir()
    (files / "output.log").write_text("half")
    log.grow(len(log_of(first)))
    follower = follower_of(store, tmp_path / "wandb")
    look(follower)
    assert read_run(store, "digits", "a").params == {"lr": 0.1}
    log.grow(len(log_of(second)))
    look(follower)
    assert read_run(store, "digits", "a").params == {"lr": 0.2, "late": 5}
    assert documents(store, "digits", "a", "artifacts/*.json") == []
    (files / "output.log").write_text("all of it")
    log.grow()
    look(follower)
    (artifact,) = documents(store, "digits", "a", "artifacts/*.json")
    assert (artifact["name"], store.get_blob(artifact["digest"])) == ("output.log", b"all of it")


def test_a_look_without_news_writes_nothing(tmp_path: Path, store: Store) -> None:
    log = growing(tmp_path / "wandb")
    log.grow(ends_of(RECORDS)[-3])
    follower = follower_of(store, tmp_path / "wandb")
    look(follower)
    with small_disk() as written:
        for _ in range(3):
            look(follower)
        assert written == []


@pytest.mark.parametrize("stopped", range(0, 24, 3))
def test_a_store_that_fails_at_any_write_costs_nothing(tmp_path: Path, store: Store, stopped: int) -> None:
    log = growing(tmp_path / "wandb")
    said: list[str] = []
    follower = follower_of(store, tmp_path / "wandb", said)
    cuts = ends_of(RECORDS)[1::3]
    with small_disk(stopped):
        for end in cuts:
            log.grow(end)
            look(follower)
    assert any("the disk is full" in line for line in said)
    follower.stop()
    log.grow()
    look(follower := follower_of(store, tmp_path / "wandb"))
    once = Store(tmp_path / "once")
    look(follower_of(once, tmp_path / "wandb"))
    assert state_of(store, "digits", "a") == state_of(once, "digits", "a")
    assert not any(row["error"] for row in follower.rows)


def test_two_followers_at_once_copy_each_point_once(tmp_path: Path, store: Store) -> None:
    log = growing(tmp_path / "wandb")
    followers = [follower_of(store, tmp_path / "wandb") for _ in range(2)]
    turns = itertools.cycle(followers)
    for end in ends_of(RECORDS):
        log.grow(end)
        next(turns).look()
        next(turns).look()
        next(turns).look()
    for follower in followers:
        look(follower)
        assert not any(row["error"] for row in follower.rows)
    once = Store(tmp_path / "once")
    look(follower_of(once, tmp_path / "wandb"))
    assert state_of(store, "digits", "a") == state_of(once, "digits", "a")


def test_a_run_that_is_written_for_hours_has_few_segments(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb_following, "_COMPACT_SHARE", 0)  # here hours are a second
    steps = 300
    records = [run_record("a"), *(history_record(step, {"loss": step}) for step in range(steps))]
    log = growing(tmp_path / "wandb", content=log_of(records))
    follower = follower_of(store, tmp_path / "wandb")
    largest = 0
    for end in ends_of(records):
        log.grow(end)
        look(follower)
        largest = max(largest, len(store.names(live_folder("digits", "a"))))
    follower.stop()
    assert largest <= 2 * wandb_following._COMPACT_SEGMENTS
    assert len(halving.curves("a", "loss", root=store.root)) == steps


def test_a_follower_that_is_stopped_at_a_compaction_ends_without_an_error(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb_following, "_COMPACT_SEGMENTS", 1)
    monkeypatch.setattr(wandb_following, "_COMPACT_SHARE", 0)
    log = growing(tmp_path / "wandb")
    follower = follower_of(store, tmp_path / "wandb")
    log.grow(ends_of(RECORDS)[1])
    look(follower)
    log.grow(ends_of(RECORDS)[5])
    follower.stop()
    assert [row["points"] for row in follower.rows] == [3]


def test_a_run_that_is_given_alone_is_followed_to_its_end(tmp_path: Path, store: Store) -> None:
    log = growing(tmp_path / "wandb")
    follower = follower_of(store, log.path.parent)
    log.grow(200)
    look(follower)
    assert not follower.is_done
    log.grow()
    look(follower)
    assert follower.is_done
    assert not follower_of(store, tmp_path / "wandb").is_done


def test_a_run_that_was_killed_is_crashed_and_may_go_on(tmp_path: Path, store: Store) -> None:
    log = growing(tmp_path / "wandb")
    log.grow(ends_of(RECORDS)[5])
    age(log.path)
    follower = follower_of(store, tmp_path / "wandb")
    look(follower)
    assert read_run(store, "digits", "a").status == "crashed"
    log.grow()
    follower = follower_of(store, tmp_path / "wandb")
    look(follower)
    assert read_run(store, "digits", "a").status == "finished"
    assert [step for key, step, _ in logged_of(store, "digits", "a") if key == "loss"] == list(range(12))


def test_what_is_not_wandbs_or_not_there_is_named(tmp_path: Path, store: Store, importer: Import) -> None:
    with pytest.raises(InvalidInput, match="it is not there"):
        follower_of(store, tmp_path / "missing")
    wrong = tmp_path / "run-a.wandb"
    wrong.write_bytes(b"PK\x03\x04 a zip file")
    with pytest.raises(InvalidInput, match="is not accepted"):
        follower_of(store, wrong).look()
    follower = follower_of(store, tmp_path)
    look(follower)
    assert [reason for reason in follower.skipped.reasons if "run-a.wandb" in reason]
    growing(tmp_path / "wandb").grow()
    look(follower)
    follower.stop()
    assert {row["run"]: row["outcome"] for row in follower.rows} == {"a": "new"}
    assert outcomes(importer(tmp_path / "wandb")) == {"a": "unchanged"}


@pytest.mark.parametrize("tool", ["tensorboard", "mlflow", "neptune", "trackio"])
def test_follow_is_refused_for_other_tools(
    tmp_path: Path, store: Store, capfd: pytest.CaptureFixture[str], tool: str
) -> None:
    from halving.cli.main import main

    assert main(["import", tool, str(tmp_path), "--follow", "--root", store.root]) == 1
    assert f"--follow is not accepted for {tool}" in capfd.readouterr().err


def test_a_store_that_is_away_is_tried_again(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb_following, "_FIRST_PAUSE", 0.0)
    log = growing(tmp_path / "wandb")
    log.grow(ends_of(RECORDS)[3])
    follower = follower_of(store, tmp_path / "wandb")
    with pytest.MonkeyPatch.context() as away:

        def refuse(*_: object, **__: object) -> None:
            raise StoreError("the store is away")

        away.setattr(Store, "create", refuse)
        look(follower)
        assert [row["error"] for row in follower.rows] == ["the store is away"]
    look(follower)
    assert [row["error"] for row in follower.rows] == [None]
    assert len(logged_of(store, "digits", "a")) == 2


def test_a_folder_that_cannot_be_read_for_a_moment_is_looked_at_again(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "wandb"
    growing(folder).grow()
    follower = follower_of(store, folder)
    folder.rename(tmp_path / "away")
    look(follower)
    assert ["cannot be read" in row["error"] for row in follower.rows] == [True]
    (tmp_path / "away").rename(folder)
    look(follower)
    assert [row["outcome"] for row in follower.rows] == ["new"]
