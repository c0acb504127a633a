"""The pages of sweeps, models and runs in a browser: what they change, and that everybody can read them."""

import re
import secrets
from datetime import date
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect
from sqlalchemy import make_url

from halving.errors import StoreUnavailable
from halving.query.runs import read_run
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.catalog.models import champion_of
from resources.scheduling import intents
from resources.sweep_spec import parse_spec
from server.identity.tokens import create_token
from server.settings import Settings
from tests.backends import SMALL
from tests.postgres import Postgres
from tests.s3 import Gate
from tests.server import plain_http
from tests.server.browser.conftest import Served, add_checkpoint, after, can_be_read, searching, serving
from tests.server.joined import with_features
from tests.server.registry import promote_winner
from tests.waiting import wait_for


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


def test_a_sweep_that_dagster_has_not_opened_says_why_it_waits_and_is_stopped(
    page: Page, served: Served
) -> None:
    with served.backend.catalog.write() as session:
        intent = intents.add(
            session, parse_spec({**SMALL, "name": "waits"}), kind="study", driver="sensors", actor="ada"
        )
    page.goto(f"{served.url}/sweeps/{intent.sweep}")
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


def test_a_version_in_staging_is_approved_and_the_champion_before_it_taken_back(
    page: Page, served: Served
) -> None:
    specs = [parse_spec({**SMALL, "name": "staged", "max_trials": trials}) for trials in (1, 2)]
    old, new = (promote_winner(served.backend, spec, curves=True) for spec in specs)
    assert new.stage == "staging"
    page.goto(f"{served.url}/models/staged")
    row = page.get_by_role("region", name="Versions, the newest first").get_by_role("row", name=new.version)
    expect(row).to_contain_text("staging")
    row.get_by_role("button", name=f"Promote: staged {new.version}").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"{old.version}, the champion until now, is archived")
    page.get_by_role("dialog").get_by_role("button", name="Promote", exact=True).click()
    expect(row).to_contain_text("champion")
    page.get_by_role("button", name="Roll back: staged").click()
    page.get_by_role("dialog").get_by_label("Why").fill("worse on night scenes")
    page.get_by_role("dialog").get_by_role("button", name="Roll back", exact=True).click()
    expect(page.get_by_role("button", name=f"Promote: staged {new.version}")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="worse on night scenes")).to_contain_text(
        f"{old.version} rolled back: archived → champion"
    )
    with served.backend.catalog.read() as session:
        champion = champion_of(session, "staged")
    assert champion is not None
    assert champion.version == old.version


def test_a_version_is_archived_and_taken_back(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/models/small")
    page.get_by_role("button", name="Archive: small 1.0.0").click()
    page.get_by_role("dialog").get_by_role("button", name="Archive", exact=True).click()
    page.get_by_role("button", name="Promote: small 1.0.0").click()
    page.get_by_role("dialog").get_by_role("button", name="Promote", exact=True).click()
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


def test_every_page_can_be_read_by_everybody(page: Page, served: Served, expected_errors: list[str]) -> None:
    expected_errors.append("404")  # of the page that is none
    run = f"/runs/small/{served.finished}.0000"
    for path in (
        "/",
        run,
        "/sweeps",
        f"/sweeps/{served.finished}",
        "/models",
        "/models/small",
        "/datasets",
        "/datasets/points",
        "/login",
        "/nowhere",
    ):
        page.goto(served.url + path, wait_until="load")
        expect(page.locator("main").get_by_role("heading", level=1)).to_be_visible()
        can_be_read(page)


def test_a_snapshot_with_features_shows_their_views_and_days(page: Page, served: Served) -> None:
    with_features(served.backend, date(2026, 3, 1), date(2026, 3, 2))
    page.goto(f"{served.url}/datasets/ctr")
    row = page.get_by_role("region", name="Features").get_by_role("row").nth(1)
    expect(row.get_by_role("rowheader")).to_have_text("clicks@1")
    cells = [
        re.compile("^ctr, night as at_night$"),
        re.compile("^2 2026-03-01 to 2026-03-02$"),
        re.compile(r"^[1-9]\d*$"),
    ]
    expect(row.get_by_role("cell")).to_have_text(cells)
    can_be_read(page)
    page.goto(f"{served.url}/datasets/points")
    expect(page.get_by_role("region", name="Columns")).to_be_visible()
    expect(page.get_by_role("region", name="Features")).to_have_count(0)


def test_trials_and_sweeps_are_sorted_by_the_pressed_head_and_by_the_url(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/sweeps/{served.finished}")
    trials = page.get_by_role("region", name="Trials")
    names = [f"{served.finished}.{number:04}" for number in range(3)]
    trials.get_by_role("button", name="Trial", exact=True).press("Enter")
    expect(trials.get_by_role("rowheader")).to_have_text(names)
    trials.get_by_role("button", name="Trial", exact=False).press("Enter")
    expect(trials.get_by_role("rowheader")).to_have_text(names[::-1])
    expect(trials.get_by_role("columnheader", name="Trial")).to_have_attribute("aria-sort", "descending")
    assert page.url.endswith("?order=-trial")
    page.goto(f"{served.url}/sweeps?order=id")
    sweeps = page.get_by_role("region", name="Sweeps")
    expect(sweeps.get_by_role("columnheader", name="Sweep")).to_have_attribute("aria-sort", "ascending")
    listed = sweeps.get_by_role("rowheader").all_inner_texts()
    assert {served.searching, served.finished} <= set(listed)
    assert listed == sorted(listed)


def test_a_list_of_sweeps_that_is_cut_says_so_and_is_longer_on_demand(page: Page, served: Served) -> None:
    def many(route: Route) -> None:
        limit = int(parse_qs(urlsplit(route.request.url).query)["limit"][0])
        (line, *_) = route.fetch().json()["studies"]
        route.fulfill(
            json={"studies": [{**line, "id": f"sweep-{number}"} for number in range(min(limit, 250))]}
        )

    page.route("**/api/v1/hpo/studies?*", many)
    page.goto(f"{served.url}/sweeps")
    rows = page.get_by_role("region", name="Sweeps").get_by_role("rowheader")
    expect(rows).to_have_count(200)
    expect(page.get_by_text("The newest 200 are listed.")).to_be_visible()
    page.get_by_role("button", name="List up to 1000").click()
    expect(rows).to_have_count(250)
    expect(page.get_by_text("are listed")).to_have_count(0)
    page.unroute_all(behavior="wait")


def test_a_run_whose_store_is_away_is_shown_as_the_index_has_it(
    page: Page, served: Served, monkeypatch: pytest.MonkeyPatch, expected_errors: list[str]
) -> None:
    expected_errors.append("503")
    run = f"{served.finished}.0000"
    index = f"{served.url}/api/v1/runs?filter=run='{run}'"
    wait_for(lambda: plain_http.get(index).json()["total"] == 1, 60, "the run to be indexed")

    def away(*_: object) -> list[str]:
        raise StoreUnavailable("no route to 10.0.0.7")

    monkeypatch.setattr("halving.store.store.Store.names", away)
    page.goto(f"{served.url}/runs/small/{run}")
    main = page.locator("main")
    expect(main.get_by_role("heading", level=1)).to_have_text(run)
    expect(main.locator(".notice")).to_contain_text("without determinism, provenance, attempts")
    expect(main.get_by_role("heading", name="Params")).to_be_visible()
    expect(main.get_by_role("heading", name="Attempts")).to_have_count(0)


@pytest.mark.smoke
def test_a_run_has_what_the_command_shows(page: Page, served: Served) -> None:
    run = read_run(served.backend.store, "small", f"{served.finished}.0000")
    page.goto(f"{served.url}/runs/small/{run.run}")
    main = page.locator("main")
    expect(main.get_by_role("heading", level=1)).to_have_text(run.run)
    for text in (*run.params, "score", f"halving show small/{run.run}"):
        expect(main.get_by_text(text, exact=True).first).to_be_visible()


def test_who_has_a_token_logs_in_and_comes_back(
    page: Page, guarded_server: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("401")
    page.goto(f"{guarded_server.url}/sweeps")
    page.get_by_label("Token", exact=True).fill("hlv_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This token does not hold")
    page.get_by_label("Token", exact=True).fill(create_token(guarded_server.backend.catalog, "ada"))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1, name="Sweeps")).to_be_visible()
    expect(page.get_by_text("ada")).to_be_visible()


def test_a_logout_that_the_server_did_not_hear_says_so_and_can_be_repeated(
    page: Page, guarded_server: Served, expected_errors: list[str]
) -> None:
    expected_errors += ["401", "ERR_FAILED"]
    page.goto(f"{guarded_server.url}/sweeps")
    page.get_by_label("Token", exact=True).fill(create_token(guarded_server.backend.catalog, "leaver"))
    page.get_by_role("button", name="Log in").click()
    page.route("**/api/v1/session", lambda route: route.abort(), times=1)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("alert")).to_contain_text("You are still logged in: the server does not answer")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1, name="Log in")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("allowed", [True, False], ids=["the old way", "not at all"])
def test_a_digest_can_be_copied_where_the_browser_withholds_its_clipboard(
    page: Page, served: Served, allowed: bool
) -> None:
    # as on plain http
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.add_init_script(
        "document.execCommand = () => { window.marked = document.activeElement.value; return "
        f"{str(allowed).lower()}; }}"
    )
    page.goto(f"{served.url}/models/small")
    button = page.get_by_role("button", name="Copy the digest of the checkpoint")
    button.click()
    expect(button).to_have_text("copied" if allowed else "mark it to copy it")
    digest = page.evaluate("window.marked")
    assert digest.startswith("sha256:")
    assert len(digest) == len("sha256:") + 64
    expect(page.locator(".copy", has=button).locator("code")).to_have_text(
        digest[7:19] if allowed else digest
    )


def test_what_a_model_page_could_not_read_of_a_version_is_said_and_the_rest_is_shown(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors += ["404", "500"]
    page.route("**/history", lambda route: route.fulfill(status=404, json={"detail": "no model 'small'"}))
    page.route(
        "**/api/v1/hpo/studies/*",
        lambda route: route.fulfill(status=500, json={"detail": "the server made an error"}),
    )
    page.goto(f"{served.url}/models/small")
    expect(page.get_by_text("No model 'small'.")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text(["small"])
    expect(page.get_by_role("alert")).to_contain_text("The server made an error")


def test_what_was_asked_before_a_login_is_asked_again_after_it(
    page: Page, guarded_server: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("401")
    page.goto(guarded_server.url)  # its runs and names are asked for before its modules are read
    page.get_by_label("Token", exact=True).fill(create_token(guarded_server.backend.catalog, "eve"))
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("[data-run]").first).to_be_visible()
    expect(page.get_by_text("eve")).to_be_visible()


def test_who_may_only_read_is_shown_nothing_to_change(
    context: BrowserContext, page: Page, guarded_server: Served
) -> None:
    add_checkpoint(guarded_server.backend, "small", f"{guarded_server.finished}.0000", epoch=3)
    changes = {
        f"/sweeps/{guarded_server.searching}": ("Pause", "Stop", "Extend"),
        "/models/small": ("Archive: small 1.0.0",),
        f"/runs/small/{guarded_server.finished}.0000": ("Go on from it: epoch 3",),
    }
    for scope in ("write", "read"):
        token = create_token(guarded_server.backend.catalog, f"may-{scope}", scope=scope)
        context.set_extra_http_headers({"Authorization": f"Bearer {token}"})
        for path, names in changes.items():
            last = "**/api/v1/training-runs/**" if path.startswith("/runs") else "**/api/v1/session"
            with page.expect_response(last) as answered:
                page.goto(guarded_server.url + path)
            expect(page.get_by_text(f"may-{scope}", exact=True)).to_be_visible()  # it is known who looks
            expect(page.get_by_role("main").get_by_role("heading", level=1)).to_be_visible()
            after(page, answered.value)
            for name in names:
                expect(page.get_by_role("button", name=name, exact=True)).to_have_count(
                    1 if scope == "write" else 0
                )


def test_a_look_that_the_server_failed_at_is_said_and_repeated(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("500")
    page.route(
        "**/api/v1/models",
        lambda route: route.fulfill(status=500, json={"status": 500, "detail": "the server made an error"}),
        times=1,
    )
    page.clock.install()
    page.goto(f"{served.url}/models")
    expect(page.get_by_role("alert")).to_contain_text("The server made an error. Retrying.")
    page.clock.fast_forward(5_000)
    expect(page.get_by_role("link", name="small", exact=True)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_page_without_its_catalog_says_so_keeps_its_data_and_recovers(
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
            wait_for(
                lambda: plain_http.get(f"{url}/api/v1/ready").status_code == 200,
                60,
                "the server to reach its catalog",
            )
            page.clock.fast_forward(10_000)  # when the server has asked to come again
            expect(page.get_by_role("alert")).to_have_count(0)
    finally:
        backend.catalog.close()
        gate.shut()
