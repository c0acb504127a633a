"""A sweep's page while its trials report, and where it leads to."""

import re

from playwright.sync_api import Page, expect

from halving.trial.messages import ReachedRung
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import HeldBack, Scheduler
from resources.tenancy.projects import set_project
from server.settings import Settings
from tests.server.browser.conftest import Served, after, searching, serving


def test_a_ladder_and_the_best_so_far_rise_on_an_open_page_while_trials_report(
    page: Page, served: Served
) -> None:
    # four of its trials wait behind the first rung or the second, a fifth trains
    sweep = searching(served.backend, "rising")
    scheduler = Scheduler(served.backend.catalog, sweep)
    ladder = page.get_by_role("region", name="Rung ladder").get_by_role("row")

    def expect_rung(rung: int, *cells: str) -> None:
        expect(ladder.nth(1 + rung).get_by_role("cell")).to_have_text(
            [re.compile(f"^{cell}$") for cell in cells]
        )

    def report(epochs: int, value: float) -> None:
        scheduler.report_rung(
            training, ReachedRung(epochs, {"score": value}, f"sha256:{training.trial}-{epochs}"), 1.0
        )

    page.goto(f"{served.url}/sweeps/{sweep}")
    page.evaluate("window.sameDocument = true")
    expect_rung(0, "4 1 promoted, 3 paused", "1", ".+")
    expect_rung(1, "1 1 paused", "", ".+")
    (training,) = scheduler.claimed_attempts()
    report(1, 10.0)
    expect_rung(0, "5 2 promoted, 3 paused", "", "10")
    expect_rung(1, "1 1 paused", "1", ".+")  # the best goes on at once
    report(3, 30.0)
    expect_rung(1, "2 2 paused", "", "30")
    expect_rung(2, "none yet", "", ".")
    expect(page.locator(".figures")).to_contain_text(f"Best score30trial {training.trial}, 3 epochs")
    assert page.evaluate("window.sameDocument"), "the page was loaded again"


def test_an_open_page_says_why_its_sweep_waits_and_no_longer_when_it_has_its_place(
    page: Page, served: Served
) -> None:
    # one of its trials is being trained
    catalog = served.backend.catalog
    sweep = searching(served.backend, "queued")
    scheduler = Scheduler(catalog, sweep, places=lambda spec: 9)
    notice = page.get_by_text(re.compile("^Waiting: "))
    page.goto(f"{served.url}/sweeps/{sweep}")
    page.evaluate("window.sameDocument = true")
    expect(page.get_by_role("heading", name="Rung ladder")).to_be_visible()
    expect(notice).to_have_count(0)
    set_project(catalog, "queued", max_trials=1)
    assert isinstance(scheduler.next_work("another worker"), HeldBack)
    expect(notice).to_have_text("Waiting: project queued has 1 trials running, and max_trials = 1")
    set_project(catalog, "queued", max_trials=2)
    assert isinstance(scheduler.next_work("another worker"), Assignment)
    expect(notice).to_have_count(0)
    assert page.evaluate("window.sameDocument"), "the page was loaded again"


def test_links_lead_to_the_configured_dagster_ui_and_are_absent_without_one(
    page: Page, served: Served
) -> None:
    pages = {
        f"/sweeps/{served.finished}": f"sweep?view=partitions&partition={served.finished}",
        "/models/small": f"promoted_checkpoint?view=partitions&partition={served.finished}",
    }
    link = page.get_by_role("main").get_by_role("link", name="Dagster")
    with serving(Settings(root=served.backend.store.root, dagster_url="https://dagster.example/ui/")) as url:
        for path, asset in pages.items():
            page.goto(url + path)
            expect(link).to_have_attribute("href", f"https://dagster.example/ui/assets/{asset}")
            expect(page.get_by_role("banner").get_by_role("link", name="Dagster")).to_have_attribute(
                "href", "https://dagster.example/ui/"
            )
        page.goto("about:blank")
    with page.expect_response("**/api/v1/session") as session:
        page.goto(f"{served.url}/sweeps/{served.finished}")
    expect(page.get_by_role("heading", name="Rung ladder")).to_be_visible()
    after(page, session.value)
    expect(page.get_by_role("link", name="Dagster")).to_have_count(0)
