"""Sound, videos and HTML of a run in a real browser: players play, and a sandbox reaches nothing."""

import base64
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, expect

import halving
from halving import init
from resources.backend import Backend
from server.settings import Settings
from tests.server.browser.conftest import serving
from tests.waiting import wait_for

# Four frames of 16x16 in VP9, a second long.
WEBM = zlib.decompress(
    base64.b64decode(
        b"eNqTcr2/eL5TWyOj03cg/tTI4vS5kcOpqaU8NSnXqb2Ryam1kUkiuCGdkQEEmCwFfWeX7PLd3R28ukXUc2Va8JrGhRCeWMi6"
        b"bCDvmu/uHiBPKORwevCaJkYjCFcmeDdQsolJ+Q3EHIZIBloBkKs2aF3f2Mzv5ODb0OOTWJZmZqxnqGdoYBTuiMJ16exw6HcA"
        b"awI5/vo6qNv8rjcyFh/tMOjgWJRpdf77nEYGpa1zmkvzUjoaGdpaw+LDAiybGxmVHze38D3b1PBgwoZGgV2NArMamUI3tITu"
        b"bGQMfdfIAPMnEwMDKCj+FRfPTz7QkH5ipuvidlc/Z38X1yCXdhTXFBffTD7QnYywN/3EEmTF04GKk2GKFXIyk8oKKnTLCizT"
        b"Tyx0XdzhEhrkGOLp7+fSPtnAwAqEDPUMYIBB3nlb6cvnjQyLFzQyMDQ0eTY7MTB8YPjGYKEiI+HFwGCQwMAgsP//X48ehsWT"
        b"Gxl+MbQxOEyawxDAwMCswMDg5LB4RiPjF6ig3wMGZqByhpP//3MmgJQzvUNXDorsibv7NzcybO8CJqqPTYxbPzQyAwAeU76U"
    )
)
HOSTILE = """<p id="said">shown</p><script>
  const tried = {};
  try { tried.cookie = document.cookie } catch (error) { tried.cookie = error.name }
  try { tried.storage = localStorage.length } catch (error) { tried.storage = error.name }
  try { tried.page = parent.document.title } catch (error) { tried.page = error.name }
  const done = reached => { tried.fetch = reached; window.tried = tried };
  fetch("/api/v1/session", {method: "POST"}).then(() => done("sent"), error => done(error.name))
</script><img src="/icon.svg"><script src="/app.js"></script>"""


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    """A server on a store with a run that logged sound, a video and HTML."""
    with init(project="p", id="r", root=backend.store.root, system_metrics=None) as run:
        samples = np.zeros(8_000, np.int16)
        run.log({"tone": halving.Audio(samples, sample_rate=8_000, caption="a tone")}, step=1)
        run.log({"clip": halving.Video(np.zeros((2, 4, 4, 1), np.uint8))}, step=1)
        run.log({"film": halving.Video(WEBM)}, step=1)
        run.log({"page": halving.Html(HOSTILE)}, step=1)
    with serving(Settings(root=backend.store.root)) as url:
        yield url


@pytest.mark.parametrize("address", ["/runs/p/r", "/?runs=p/r&tab=media"])
def test_sound_can_be_played_and_html_reaches_nothing(
    url: str, context: BrowserContext, address: str
) -> None:
    page = context.new_page()
    page.goto(url + address)
    sound = page.locator("audio")
    expect(sound).to_be_visible()
    sound.scroll_into_view_if_needed()
    seconds = sound.evaluate(
        "element => new Promise(done => { element.onloadedmetadata = () => done(element.duration);"
        " element.preload = 'metadata'; element.load() })"
    )
    assert seconds == 1.0
    film = page.locator("video")
    film.scroll_into_view_if_needed()
    wait_for(lambda: film.evaluate("element => element.readyState >= 1"), 60, "the video's head is read")
    assert film.evaluate("element => [element.videoWidth, element.duration]") == [16, 1.0]
    expect(page.locator("img[src*='/api/v1/blobs/']")).to_have_count(1)
    page.locator("iframe").scroll_into_view_if_needed()
    expect(page.frame_locator("iframe").locator("#said")).to_have_text("shown")
    frame = page.frames[-1]
    tried: Any = wait_for(lambda: frame.evaluate("window.tried"), 60, "the script has tried everything")
    assert tried == {
        "cookie": "SecurityError",
        "storage": "SecurityError",
        "page": "SecurityError",
        "fetch": "TypeError",
    }
    assert frame.evaluate("self.origin") == "null"


def test_html_opened_by_itself_reaches_nothing_either(url: str, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{url}/runs/p/r")
    address = page.locator("iframe").get_attribute("src")
    assert address is not None
    requests: list[str] = []
    alone = context.new_page()
    alone.on("requestfinished", lambda request: requests.append(request.url))
    alone.goto(url + address)
    tried: Any = wait_for(lambda: alone.evaluate("window.tried"), 60, "the script has tried everything")
    assert (tried["cookie"], tried["fetch"]) == ("SecurityError", "TypeError")
    assert requests == [url + address]
