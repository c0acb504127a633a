"""Notes on the pages of runs, sweeps and models, and the journal, in a browser."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect

from resources.backend import Backend
from resources.catalog import NoteRow, utcnow
from resources.journal import add_note, subject_of
from server.identity.tokens import create_token
from tests.server.browser.conftest import Served, can_be_read, fits

NASTY = """# Why it *diverged*

<script>document.title = "run"</script> <img src=x onerror="document.title = 'run'"> <b>bold</b>

![pixel](https://elsewhere.example/pixel.png) [bad](javascript:document.title='run') [worse](//evil.example)
[good](https://docs.example/a?b=1) and [here](/sweeps) &amp; `x < 1`

- warm-up of **500** steps
- see train.py

| lr | loss |
|---|---|
| 0.1 | nan |

```
print("<i>")
```
"""


def write(page: Page, text: str) -> None:
    page.get_by_label("Write a note, in Markdown").fill(text)
    page.get_by_role("button", name="Save note").click()


def look(page: Page, name: str) -> None:
    """Take a picture of what is shown, where PICTURES names a folder."""
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=str(Path(folder) / f"journal-{name}.png"), full_page=True)


@pytest.mark.parametrize("kind", ["run", "sweep", "model"])
def test_a_note_is_written_and_is_there_at_once_on_the_page_of_its_subject(
    page: Page, served: Served, kind: str
) -> None:
    address = {
        "run": f"/runs/small/{served.finished}.0000",
        "sweep": f"/sweeps/{served.finished}",
        "model": "/models/small",
    }[kind]
    page.goto(served.url + address)
    box = page.get_by_label("Write a note, in Markdown")
    box.fill(f"**{kind}** of note")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="Preview").locator("strong")).to_have_text(kind)
    page.get_by_role("button", name="Write").click()
    box.press("Control+Enter")
    note = page.locator(".notes > li").first
    expect(note.locator("strong")).to_have_text(kind)
    expect(note).to_contain_text("local")
    expect(box).to_have_value("")
    can_be_read(page)
    look(page, kind)


def test_what_a_note_has_of_html_is_shown_and_never_run_and_nothing_is_loaded_for_it(
    page: Page, served: Served
) -> None:
    requests: list[Request] = []
    page.on("request", lambda request: requests.append(request))
    page.goto(f"{served.url}/sweeps/{served.searching}")
    write(page, NASTY)
    note = page.locator(".notes > li").first
    expect(note.locator("h3")).to_have_text("Why it diverged")
    expect(note).to_contain_text("<script>document.title")
    expect(note).to_contain_text('onerror="document.title')
    expect(note).to_contain_text("& x < 1")
    assert note.locator("script, img, iframe, b:not(p.muted > b)").count() == 0
    links = note.locator(".markdown a")
    assert [link.get_attribute("href") for link in links.all()] == [
        "https://elsewhere.example/pixel.png",
        "https://docs.example/a?b=1",
        "/sweeps",
    ]
    assert {link.get_attribute("rel") for link in links.all()} == {"noopener noreferrer nofollow"}
    expect(note.locator("td").first).to_have_text("0.1")
    expect(note.locator("pre")).to_have_text('print("<i>")')
    assert page.title() != "run"
    assert {request.url.split("/")[2] for request in requests} == {served.url.split("/")[2]}
    can_be_read(page)
    look(page, "markdown")


def test_the_journal_is_read_to_its_end_by_scrolling_and_new_notes_come_by_themselves(
    page: Page, served: Served
) -> None:
    with served.backend.catalog.write() as session:
        subject = subject_of(session, "project", "small")
        session.add_all(
            [
                NoteRow(
                    at=utcnow(), actor="ada", project="small", kind="project", subject="small", text=f"n{n}"
                )
                for n in range(250)
            ]
        )
    page.goto(f"{served.url}/journal")
    expect(page.get_by_text("n249", exact=True)).to_be_visible()
    expect(page.get_by_text("n0", exact=True)).to_have_count(0)
    while page.get_by_role("button", name="Show older entries").count():
        page.mouse.wheel(0, 20_000)
        page.evaluate("new Promise((done) => setTimeout(done, 50))")
    expect(page.get_by_text("n0", exact=True)).to_have_count(1)
    texts = page.locator(".journal-day .markdown").all_inner_texts()
    assert [text for text in texts if text[1:].isdigit()] == [f"n{number}" for number in reversed(range(250))]
    expect(page.get_by_text("created: ").first).to_be_attached()
    _write_behind(served.backend, "from **elsewhere**")
    expect(page.locator(".journal-day strong").first).to_have_text("elsewhere")
    assert page.get_by_text("n0", exact=True).count() == 1  # what was read stays
    assert subject.name == "small"


def test_the_journal_is_filtered_and_the_filter_is_in_its_address(page: Page, served: Served) -> None:
    _write_behind(served.backend, "a note")
    page.goto(f"{served.url}/journal")
    page.get_by_role("combobox", name="Project").select_option("small")
    page.get_by_role("combobox", name="About").select_option("sweep")
    expect(page.get_by_role("link", name=served.finished, exact=True).first).to_be_visible()
    page.get_by_role("combobox", name="About").select_option("model")
    expect(
        page.get_by_text("promoted: staging → champion").or_(page.get_by_text("registered")).first
    ).to_be_visible()
    page.get_by_role("combobox", name="About").select_option("")
    page.get_by_label("notes only").check()
    expect(page.get_by_text("created: ")).to_have_count(0)
    assert page.url.endswith("/journal?project=small&notes=true")
    page.reload()
    expect(page.get_by_label("notes only")).to_be_checked()
    expect(page.locator(".journal-day > li").first).to_be_visible()
    page.get_by_label("notes only").uncheck()
    page.get_by_role("combobox", name="About").select_option("sweep")
    expect(page.get_by_role("link", name=served.finished, exact=True).first).to_be_visible()
    can_be_read(page)
    look(page, "page")
    page.set_viewport_size({"width": 375, "height": 800})
    page.reload()
    expect(page.locator(".journal-day > li").first).to_be_visible()
    expect(page.get_by_role("link", name="Journal")).to_be_in_viewport()
    fits(page, 375)
    page.emulate_media(color_scheme="dark")
    look(page, "phone-dark")


def test_who_may_only_read_has_no_box_to_write_in(
    page: Page, guarded_server: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("401 (Unauthorized)")  # before the log-in
    token = create_token(guarded_server.backend.catalog, "reader", scope="read")
    page.goto(f"{guarded_server.url}/login")
    page.get_by_role("textbox", name="Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    page.goto(f"{guarded_server.url}/sweeps/{guarded_server.finished}")
    expect(page.get_by_text("Nobody has written a note yet.")).to_be_visible()
    expect(page.get_by_label("Write a note, in Markdown")).to_have_count(0)


def test_a_note_that_could_not_be_sent_stays_in_the_box_and_is_written_once(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("Failed to load resource")
    page.goto(f"{served.url}/runs/small/{served.finished}.0001")
    lost = []

    def answer_lost(route) -> None:  # type: ignore[no-untyped-def]
        if not lost:
            lost.append(route.fetch())
            route.abort()
            return
        route.continue_()

    page.route("**/api/v1/journal", answer_lost)
    write(page, "only once")
    expect(page.get_by_text("the server does not answer")).to_be_visible()
    expect(page.get_by_label("Write a note, in Markdown")).to_have_value("only once")
    page.get_by_role("button", name="Save note").click()
    expect(page.get_by_label("Write a note, in Markdown")).to_have_value("")
    expect(page.locator(".notes > li")).to_have_count(1)


def _write_behind(backend: Backend, text: str) -> None:
    with backend.catalog.write() as session:
        add_note(session, subject_of(session, "project", "small"), text, actor="ada")
