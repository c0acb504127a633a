"""The pages of sweeps, models and runs in a browser: what they change, and that everybody can read them."""

import secrets
import shutil
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import BrowserContext, Page, expect
from sqlalchemy import make_url

from halving.query.runs import read_run
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.catalog.models import champion_of
from resources.scheduling import intents
from resources.sweep_spec import parse_spec
from server.identity.tokens import create_token
from server.settings import Settings
from server.vendor import MODULES
from tests.backends import SMALL
from tests.postgres import Postgres
from tests.s3 import Gate
from tests.server.browser.conftest import Served, add_checkpoint, searching, serving
from tests.server.registry import promoted
from tests.waiting import wait_for

AXE = MODULES / "axe-core" / "axe.min.js"


def test_a_sweep_is_paused_and_goes_on(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/sweeps/{served.searching}")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_text("Paused: no trial starts until it is resumed.")).to_be_visible()
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


def test_a_sweep_is_stopped_by_who_confirms_it_and_by_nobody_else(page: Page, served: Served) -> None:
    sweep = searching(served.backend, "stopped")
    page.goto(f"{served.url}/sweeps/{sweep}")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("The search ends now")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert _sweep(served, sweep).control == "run"
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_text("Being stopped: its last trials end now")).to_be_visible()
    assert _sweep(served, sweep).control == "stop"
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)


def test_a_sweep_that_dagster_has_not_opened_says_why_it_waits_and_is_stopped(page: Page, served: Served) -> None:
    with served.backend.catalog.write() as session:
        asked = intents.add(session, parse_spec({**SMALL, "name": "waits"}), kind="study", driver="sensors", actor="ada")
    page.goto(f"{served.url}/sweeps/{asked.sweep}")
    expect(page.get_by_text("Not open yet; it waits: for Dagster's sensor launch_requested")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_text("It was never opened: it was canceled by local")).to_be_visible()
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)


def test_a_sweep_is_extended_to_more_trials_than_it_has(page: Page, served: Served) -> None:
    sweep = searching(served.backend, "extended")
    page.goto(f"{served.url}/sweeps/{sweep}")
    page.get_by_role("button", name="Extend", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Trials in all").fill("9")
    dialog.get_by_role("button", name="Extend", exact=True).click()
    expect(dialog).to_be_visible()  # the browser itself refuses: it may start 9 already
    dialog.get_by_label("Trials in all").fill("20")
    dialog.get_by_role("button", name="Extend", exact=True).click()
    expect(page.get_by_text("of 20 started")).to_be_visible()
    assert _sweep(served, sweep).max_trials == 20


def _sweep(served: Served, sweep: str) -> SweepRow:
    with served.backend.catalog.read() as session:
        return served.backend.catalog.sweep(session, sweep)


def test_a_version_in_staging_is_approved_and_the_champion_before_it_taken_back(page: Page, served: Served) -> None:
    specs = [parse_spec({**SMALL, "name": "staged", "max_trials": trials}) for trials in (1, 2)]
    old, new = (promoted(served.backend, spec, curves=True) for spec in specs)
    assert new.stage == "staging"
    page.goto(f"{served.url}/models/staged")
    row = page.get_by_role("row", name=new.version)
    expect(row).to_contain_text("staging")
    row.get_by_role("button", name=f"Promote: staged {new.version}").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"{old.version}, the champion until now, is archived")
    page.get_by_role("dialog").get_by_role("button", name="Promote", exact=True).click()
    expect(row).to_contain_text("champion")
    page.get_by_role("button", name=f"Roll back to it: staged {old.version}").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back", exact=True).click()
    expect(page.get_by_role("button", name=f"Roll back to it: staged {new.version}")).to_be_visible()
    with served.backend.catalog.read() as session:
        champion = champion_of(session, "staged")
    assert champion is not None
    assert champion.version == old.version


def test_a_version_is_archived_and_taken_back(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/models/small")
    page.get_by_role("button", name="Archive: small 1.0.0").click()
    page.get_by_role("dialog").get_by_role("button", name="Archive", exact=True).click()
    page.get_by_role("button", name="Roll back to it: small 1.0.0").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back", exact=True).click()
    expect(page.get_by_role("button", name="Archive: small 1.0.0")).to_be_visible()


def test_keys_open_the_help_and_sections(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/models")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.get_by_role("heading", level=1, name="Sweeps")).to_be_visible()


def test_every_page_can_be_read_by_everybody(page: Page, served: Served) -> None:
    if not AXE.exists():
        # Where npm is, as in CI, axe must be: its absence may not pass for a page that everybody can read.
        (pytest.fail if shutil.which("npm") else pytest.skip)("needs axe-core: make check-page (and for that npm: apt-get install npm)")
    run = f"/runs/small/{served.finished}.0000"
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("/", run, "/sweeps", f"/sweeps/{served.finished}", "/models", "/models/small", "/datasets", "/datasets/points", "/login"):
        page.goto(served.url + path, wait_until="load")
        expect(page.locator("main").get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        page.evaluate(AXE.read_text())
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            assert not [(one["id"], one["nodes"][0]["html"]) for one in found], (path, theme)


def test_a_run_has_what_the_command_shows(page: Page, served: Served) -> None:
    run = read_run(served.backend.store, "small", f"{served.finished}.0000")
    page.goto(f"{served.url}/runs/small/{run.run}")
    main = page.locator("main")
    expect(main.get_by_role("heading", level=1)).to_have_text(run.run)
    for shown in (*run.params, "score", f"halving show small/{run.run}"):
        expect(main.get_by_text(shown, exact=True).first).to_be_visible()


def test_who_has_a_token_logs_in_and_comes_back(page: Page, guarded_server: Served, expected_errors: list[str]) -> None:
    expected_errors.append("401")
    page.goto(f"{guarded_server.url}/sweeps")
    page.get_by_label("Token", exact=True).fill("hlv_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This token does not hold")
    page.get_by_label("Token", exact=True).fill(create_token(guarded_server.backend.catalog, "ada"))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1, name="Sweeps")).to_be_visible()
    expect(page.get_by_text("ada")).to_be_visible()


def test_who_may_only_read_is_shown_nothing_to_change(context: BrowserContext, page: Page, guarded_server: Served) -> None:
    token = create_token(guarded_server.backend.catalog, "reader", scope="read")
    context.set_extra_http_headers({"Authorization": f"Bearer {token}"})
    add_checkpoint(guarded_server.backend, "small", f"{guarded_server.finished}.0000", epoch=3)
    shown = {
        f"/sweeps/{guarded_server.searching}": "Rung ladder",
        "/models/small": "Versions",
        f"/runs/small/{guarded_server.finished}.0000": "Checkpoints",
    }
    for path, heading in shown.items():
        page.goto(guarded_server.url + path, wait_until="networkidle" if path.startswith("/runs") else "load")
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
        for name in ("Pause", "Stop", "Extend", "Archive", "Promote", "Cancel", "Go on from"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_a_page_without_its_catalog_says_so_keeps_what_it_knew_and_recovers_by_itself(
    page: Page, postgres: Postgres, tmp_path: Path, expected_errors: list[str]
) -> None:
    expected_errors.append("503")
    direct = make_url(postgres.database(f"t{secrets.token_hex(6)}"))
    gate = Gate((str(direct.host), int(direct.port or 0)))
    host, _, port = gate.endpoint.partition(":")
    backend = Backend(root=str(tmp_path / "root"), catalog_url=direct.render_as_string(hide_password=False))
    sweep = searching(backend, "going")
    try:
        behind = direct.set(host=host, port=int(port)).render_as_string(hide_password=False)
        with serving(Settings(root=backend.store.root, catalog_url=behind)) as url:
            page.clock.install()
            page.goto(f"{url}/sweeps/{sweep}")
            expect(page.get_by_role("heading", name="Rung ladder")).to_be_visible()
            gate.shut()
            page.clock.fast_forward(2_000)  # the next look
            expect(page.get_by_role("alert")).to_contain_text("The catalog does not answer")
            expect(page.get_by_role("alert")).to_contain_text("Showing what was known at")
            expect(page.get_by_role("heading", name="Rung ladder")).to_be_visible()
            gate.open()
            wait_for(lambda: httpx2.get(f"{url}/api/v1/ready").status_code == 200, 30, "the server to reach its catalog")
            page.clock.fast_forward(10_000)  # when the server has asked to come again
            expect(page.get_by_role("alert")).to_have_count(0)
    finally:
        backend.catalog.close()
        gate.shut()
