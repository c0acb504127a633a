"""The page of alerts: what was told to whom, in a browser."""

from playwright.sync_api import Page, expect
from sqlalchemy import update

from resources.alerts.alert import Alert
from resources.alerts.channels import add_channel
from resources.alerts.outbox import raise_alert, write_messages
from resources.catalog import AlertMessageRow
from tests.server.browser.conftest import Served, can_be_read, fits


def test_alerts_are_listed_with_what_became_of_them_and_filtered_in_the_address(
    page: Page, served: Served
) -> None:
    catalog = served.backend.catalog
    page.goto(f"{served.url}/alerts?event=budget")
    expect(page.get_by_role("heading", name="No alerts of these")).to_be_visible()
    now = catalog.now()
    with catalog.write() as session:
        add_channel(session, "ops", "slack", "https://hooks.example.com/", actor="ada", events=["silent"])
        text = "<img src=x onerror=\"document.title='run'\">" + "x" * 200
        silent = Alert(
            "page:1", "silent", "run", "small/a", "small/a has logged nothing", text, project="small"
        )
        raise_alert(session, silent, now - 60)
        raise_alert(session, Alert("page:2", "logged", "run", "small/b", "small/b: <b>bold</b>"), now - 30)
    write_messages(catalog)
    with catalog.write() as session:
        dead = {"state": "dead", "error": "HTTP 404: no_service", "next_at": 1e12}
        session.execute(update(AlertMessageRow).where(AlertMessageRow.channel == "ops").values(**dead))
    page.goto(f"{served.url}/alerts")
    rows = page.locator(".alerts > li")
    bold = rows.filter(has_text="<b>bold</b>")
    expect(bold).to_contain_text("nobody was told")
    silent_row = rows.filter(has_text="has logged nothing")
    expect(silent_row).to_contain_text("HTTP 404: no_service")
    expect(silent_row.get_by_role("link")).to_have_attribute("href", "/runs/small/a")
    page.get_by_role("combobox", name="Event").select_option("silent")
    expect(bold).to_have_count(0)
    assert page.url.endswith("/alerts?event=silent")
    can_be_read(page)
    page.set_viewport_size({"width": 375, "height": 800})
    page.reload()
    expect(silent_row).to_be_visible()
    fits(page, 375)
    assert page.title() == "Alerts · Halving"
