"""The page of a run while it trains.

Its curves grow, its state changes, it is canceled, and a new run goes on from a checkpoint.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

import halving
from halving import Run
from halving.imports.copying import copy_run
from halving.imports.foreign_run import ForeignRun, Piece, PieceBuilder, Position, Skipped, iso
from resources.catalog import IntentRow
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec import SweepSpec, parse_spec, stored_spec
from tests.backends import SMALL
from tests.server import plain_http
from tests.server.browser.conftest import Served, add_checkpoint, after, can_be_read
from tests.server.launched import carried_out


@contextmanager
def _training(served: Served, project: str, run_id: str) -> Iterator[Run]:
    """A run of this process that has logged ten losses."""
    run = halving.init(project, {"lr": 1.0}, root=served.backend.store.root, id=run_id, system_metrics=None)
    try:
        _log(run, range(10))
        yield run
    finally:
        run.finish()


def _log(run: Run, steps: range) -> None:
    for step in steps:
        run.log({"loss": 1 / (step + 1)}, step=step)
    run.flush()


def _last_point(page: Page) -> Locator:
    """The row that says in words what the curve of the loss shows."""
    panel = page.locator('[data-metric="loss"]')
    as_table = panel.get_by_role("button", name="loss as a table")
    as_table.click()
    expect(as_table).to_have_attribute("aria-pressed", "true")
    return panel.get_by_role("row").last


def _asked_for(served: Served) -> dict[str, Any]:
    """A training run that waits for Dagster."""
    snapshot = take_snapshot(served.backend.store, served.backend.catalog, parse_spec(SMALL).dataset)
    body = {
        "project": "single",
        "trainable": "tests.trainables:train",
        "dataset": snapshot.key,
        "objective": {"metric": "score", "direction": "maximize"},
        "params": {"x": 0.4},
        "epochs": 3,
    }
    answer = plain_http.post(f"{served.url}/api/v1/training-runs", json=body, timeout=60)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def _badge(page: Page) -> Locator:
    return page.locator(".page-top .badge")


def test_curves_grow_while_a_run_trains_and_its_end_is_shown(page: Page, served: Served) -> None:
    with _training(served, "demo", "live") as run:
        page.goto(f"{served.url}/runs/demo/live")
        point = _last_point(page)
        expect(point).to_contain_text("step 9")
        expect(_badge(page)).to_have_text("running")
        _log(run, range(10, 20))
        expect(point).to_contain_text("step 19")
    expect(_badge(page)).to_have_text("finished")
    expect(page.get_by_role("region", name="Attempts")).to_contain_text("finished")
    expect(point).to_contain_text("step 19")


def test_curves_come_by_the_stream_and_are_not_asked_for_again_with_each_point(
    page: Page, served: Served
) -> None:
    with _training(served, "demo", "streamed") as run:
        page.goto(f"{served.url}/runs/demo/streamed")
        point = _last_point(page)
        expect(point).to_contain_text("step 9")
        page.wait_for_load_state("load")
        requests: list[str] = []
        page.on(
            "request",
            lambda request: requests.append(request.url) if request.url.endswith("/curves") else None,
        )
        for step in (10, 11):
            _log(run, range(step, step + 1))
            expect(point).to_contain_text(f"step {step}")
        assert len(requests) <= 1, "once the stream is open the curves are read again, and then never"


def test_a_run_that_was_asked_for_is_shown_from_its_waiting_to_its_end(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("404")  # it has no record until its process starts
    run = _asked_for(served)
    page.goto(f"{served.url}/runs/{run['run_id']}")
    expect(page.get_by_text("Waiting: for Dagster's sensor launch_requested")).to_be_visible()
    scheduler = carried_out(served.backend, run["intent"])
    assignment = scheduler.next_work("w")
    with _training(served, "single", run["run"]):
        expect(_badge(page)).to_have_text("running")
        expect(_last_point(page)).to_contain_text("step 9")
        _cancel(page)
        expect(page.get_by_text("Being canceled")).to_be_visible()
        assert scheduler.heartbeat(assignment) == "stop"  # type: ignore[arg-type]
    scheduler.release(assignment, 1.0)  # type: ignore[arg-type]
    scheduler.next_work("w")
    expect(page.get_by_text("Canceled. A new run can go on")).to_be_visible()
    expect(_badge(page)).to_have_text("finished")


def test_a_run_is_canceled_by_who_confirms_it_and_by_nobody_else(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("404")
    run = _asked_for(served)
    page.goto(f"{served.url}/runs/{run['run_id']}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Let it train").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert plain_http.get(f"{served.url}{run['url']}").json()["status"] == "waiting"
    _cancel(page)
    expect(_badge(page)).to_have_text("canceled")
    expect(page.get_by_text("Canceled before it began.")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)


def _cancel(page: Page) -> None:
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()


def test_each_attempt_of_a_trial_says_why_it_ended_and_what_was_left_out_is_told(
    page: Page, served: Served
) -> None:
    training = _asked_for(served)
    scheduler = carried_out(served.backend, training["intent"])
    stacks = "".join(
        f'  rank {rank} (waited):\n      File "/a/rather/long/path/of/train.py", line {rank} in train\n'
        for rank in range(64)
    )
    hang = (
        f"Where each rank was when the collective was given up:\n{stacks}rank 64 did not come to "
        "all_reduce within 600 s"
    )
    scheduler.report_crash(scheduler.next_work("pod-a:1"), hang, 1.0)  # type: ignore[arg-type]
    pending = (
        "the pods did not start within 30 min: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu [16 "
        "asked]"
    )
    scheduler.report_preemption(scheduler.next_work("pod-b:1"), pending, 1.0)  # type: ignore[arg-type]
    scheduler.next_work("pod-c:1")
    run = Run(
        served.backend.store,
        project="single",
        run_id=training["run"],
        params={"x": 0.4},
        seed=None,
        attempt=3,
        system_metrics=None,
    )
    try:
        for step in range(4):
            run.log({"system/collectives": 60.0, "system/collectives/rank.1": 2.0}, step=step)
        run.log({"system/skipped_steps": 2, "system/nonfinite_loss/rank.1": 2}, step=57)
        run.flush()
        page.goto(f"{served.url}/runs/{training['run_id']}")
        attempts = page.get_by_role("region", name="Attempts")
        expect(attempts.get_by_role("rowheader")).to_have_text(["1", "2", "3"])
        expect(attempts.locator(".badge")).to_have_text(["crashed", "preempted", "running"])
        for reason in ("rank 64 did not come to all_reduce within 600 s", pending):
            expect(attempts.get_by_text(reason, exact=True)).to_be_visible()
        expect(attempts.get_by_text("1 rank, 1 node")).to_have_count(3)
        whole = attempts.locator("pre")
        expect(whole).to_be_hidden()
        attempts.get_by_text("All that attempt 1 said").click()
        expect(whole).to_contain_text("line 63 in train")
        expect(page.get_by_text(f"Attempt 2 ended early: {pending}")).to_be_visible()
        expect(
            page.get_by_text("attempt 3 left out 2 steps that were NaN or infinite (the loss of rank 1 in 2)")
        ).to_be_visible()
        expect(page.get_by_text("rank 1, 2.5 times as long as the others")).to_be_visible()
        can_be_read(page)
    finally:
        run.finish()


def test_a_trial_whose_pods_have_never_started_says_so_of_every_attempt(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("404")  # no process has written a record
    run = _asked_for(served)
    scheduler = carried_out(served.backend, run["intent"])
    pending = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu [16 asked]"
    scheduler.report_crash(scheduler.next_work("pod-a:1"), f"the pods did not start: {pending}", 1.0)  # type: ignore[arg-type]
    scheduler.note_waiting(scheduler.next_work("pod-b:1"), pending)  # type: ignore[arg-type]
    page.goto(f"{served.url}/runs/{run['run_id']}")
    expect(page.get_by_text(f"Waiting: {pending}")).to_be_visible()
    attempts = page.get_by_role("region", name="Attempts")
    expect(attempts.get_by_text(f"the pods did not start: {pending}", exact=True)).to_be_visible()
    expect(attempts.locator(".badge")).to_have_text(["crashed", "waiting"])
    can_be_read(page)


def test_a_trial_of_a_sweep_is_not_offered_to_be_canceled_alone(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("404")
    with served.backend.catalog.read() as session:
        running = next(
            row for row in served.backend.catalog.trials(session, served.searching) if row.status == "running"
        )
    with page.expect_response("**/api/v1/training-runs/**") as answered:
        page.goto(f"{served.url}/runs/going/{served.searching}.{running.number:04d}")
    expect(_badge(page)).to_have_text("running")
    expect(page.get_by_role("main").get_by_role("link", name=served.searching)).to_be_visible()
    assert answered.value.ok
    after(page, answered.value)
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)


def test_a_new_run_goes_on_from_a_checkpoint(page: Page, served: Served, expected_errors: list[str]) -> None:
    expected_errors.append("404")
    run = f"{served.finished}.0001"
    add_checkpoint(served.backend, "small", run, epoch=3)
    page.goto(f"{served.url}/runs/small/{run}")
    page.get_by_role("button", name="Go on from it: epoch 3").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Epochs in all")).to_have_value("9")
    dialog.get_by_label("Epochs in all").fill("3")
    dialog.get_by_role("button", name="Start the run").click()
    expect(dialog).to_be_visible()  # the browser itself refuses: nothing would be left to train
    dialog.get_by_label("Epochs in all").fill("12")
    dialog.get_by_role("button", name="Start the run").click()
    expect(page.get_by_text(f"epoch 3 of {run}")).to_be_visible()
    expect(_badge(page)).to_have_text("waiting")
    [restored] = _restored_from(served, run)
    assert (restored.name, restored.budgets[-1]) == ("small", 12)


def test_a_confirmation_whose_answer_was_lost_starts_nothing_twice(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors += ["404", "ERR_FAILED"]
    run = f"{served.finished}.0002"
    add_checkpoint(served.backend, "small", run, epoch=5)
    keys: list[str] = []

    def lost(route: Route) -> None:
        assert route.fetch().ok
        route.abort()

    page.goto(f"{served.url}/runs/small/{run}")
    page.get_by_role("button", name="Go on from it: epoch 5").click()
    dialog = page.get_by_role("dialog")
    page.route("**/restore", lost, times=1)
    page.on(
        "request",
        lambda request: (
            keys.append(request.headers["idempotency-key"]) if request.url.endswith("/restore") else None
        ),
    )
    dialog.get_by_role("button", name="Start the run").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The server does not answer")
    dialog.get_by_role("button", name="Start the run").click()
    expect(page.get_by_text(f"epoch 5 of {run}")).to_be_visible()
    assert len(set(keys)) == 1
    assert len(_restored_from(served, run)) == 1


def _restored_from(served: Served, run: str) -> list[SweepSpec]:
    """What was asked for that begins with a checkpoint of a run."""
    with served.backend.catalog.read() as session:
        specs = [stored_spec(row.payload["spec"]) for row in session.query(IntentRow)]
    return [spec for spec in specs if spec.restored_from and spec.restored_from.run == run]


def test_the_run_of_a_script_is_not_asked_for_in_the_catalog(page: Page, served: Served) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    with _training(served, "demo", "script"):
        pass
    page.goto(f"{served.url}/runs/demo/script", wait_until="networkidle")
    expect(_badge(page)).to_have_text("finished")
    assert not [url for url in requests if "/training-runs/" in url]


def test_a_run_is_deleted_by_who_confirms_it_and_restored(page: Page, served: Served) -> None:
    with _training(served, "demo", "unwanted"):
        pass
    page.goto(f"{served.url}/runs/demo/unwanted")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("In the trash since")).to_be_visible()
    page.get_by_role("button", name="Restore", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_role("button", name="Archive", exact=True)).to_be_visible()


def test_an_imported_run_names_its_source_and_nothing_that_was_not_recorded(
    served: Served, page: Page
) -> None:
    def pieces(position: Position) -> Iterator[Piece]:
        builder = PieceBuilder(Skipped(), position)
        for step in range(3):
            builder.add("loss", step, 1_700_000_000_000 + step, 1.0)
        yield builder.take()

    run = ForeignRun(
        project="logs",
        run="first-c0ffee",
        origin={"tool": "tensorboard", "run": "first", "path": "/data/logs"},
        params={},
        tags={},
        started=iso(1_700_000_000_000),
        ended=None,
        status="finished",
        pieces=pieces,
    )
    copy_run(served.backend.store, run, Skipped(), Counter())
    page.goto(f"{served.url}/runs/logs/first-c0ffee")
    expect(page.get_by_text("tensorboard: first in /data/logs")).to_be_visible()
    expect(page.get_by_text("not recorded by tensorboard")).to_be_visible()
    expect(page.get_by_text("undefined")).to_have_count(0)


def test_a_metric_has_its_x_axis_beside_it_and_a_hidden_one_no_chart(
    page: Page, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    import halving.wandb as wandb

    monkeypatch.setenv("HALVING_ROOT", str(served.backend.store.root))
    with wandb.init(project="demo", id="defined", settings={"x_disable_stats": True}) as run:
        run.define_metric("val/*", step_metric="epoch", summary="min")
        run.define_metric("epoch", hidden=True)
        for epoch in range(3):
            run.log({"val/loss": 1 / (epoch + 1), "epoch": epoch})
    page.goto(f"{served.url}/runs/demo/defined")
    expect(page.get_by_role("rowheader", name="val/loss over epoch", exact=True)).to_be_visible()
    expect(page.get_by_role("rowheader", name="val/loss/min", exact=True)).to_be_visible()
    expect(page.locator("[data-metric]")).to_have_count(1)
    expect(page.locator('[data-metric="val/loss"]')).to_be_visible()
