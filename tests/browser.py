"""Debian's Chromium, driven by Playwright, for all tests and for the pictures in ``docs/images``.

It is the headless shell: the same engine without the application around it, which takes half of a test's time
when it is there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium-headless-shell")
MISSING = "needs Debian's browser: apt-get install chromium-headless-shell"
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """A browser without a window; while it is open no other event loop can run in this thread.

    Args:
        arguments: of its command line, beside those that keep it quiet.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=[*_ARGUMENTS, *arguments])
        try:
            yield browser
        finally:
            browser.close()


def errors_of(page: Page) -> list[str]:
    """Errors of the page's console and its scripts from now on; the list grows while the page is open."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: (
            errors.append(f"{message.text} ({message.location})") if message.type == "error" else None
        ),
    )
    return errors
