"""Take the pictures in ``docs/images`` from Dagster's UI, the page and the report, on the data of ``make demo``: ``make screenshots``."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from pipelines.cli import newest_sweep
from resources.analysis.summary import summarize
from resources.backend import Backend
from resources.evaluation.report import report_path

IMAGES = Path(__file__).parent / "images"
PORT = 3939
UI = f"http://127.0.0.1:{PORT}"
PAGE_PORT = 3940
PAGE = f"http://127.0.0.1:{PAGE_PORT}"


def main() -> None:
    """Serve the UI, visit the pages, and stop it again."""
    backend = Backend()
    sweep = newest_sweep(backend)
    best = summarize(backend.catalog, sweep).best if sweep else None
    if sweep is None or best is None:
        sys.exit("there is no finished sweep to show: run `make demo` first")
    project = sweep.rpartition("-")[0]
    server = subprocess.Popen(
        [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-p", str(PORT)],
        env=os.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    page = subprocess.Popen([sys.executable, "-m", "halving.cli.main", "serve", "--port", str(PAGE_PORT)], stdout=subprocess.DEVNULL)
    IMAGES.mkdir(exist_ok=True)
    try:
        _wait_for(f"{UI}/server_info")
        _wait_for(f"{PAGE}/api/v1/ready")
        with tempfile.TemporaryDirectory() as profile, _browser(profile) as browser:
            _shoot(browser, f"{PAGE}/?columns=params.lr,metrics.val_accuracy", "compare.png", "val_accuracy")
            _shoot(browser, f"{PAGE}/sweeps/{sweep}", "sweep-page.png", "Rung ladder")
            _shoot(browser, f"{PAGE}/runs/{project}/{best.key}", "run-page.png", "Metrics", height=560)
            _shoot(browser, f"{PAGE}/models/{project}", "model-page.png", "Gates")
            _shoot(browser, f"{UI}/asset-groups", "asset-graph.png", "promoted_checkpoint")
            _shoot(browser, f"{UI}/assets/trial?view=partitions&partition={best.key}", "trial.png", "objective", height=1250)
            _shoot(browser, f"{UI}/assets/trial", "trial-plots.png", "objective", click="Plots", height=1000)
            _shoot(browser, f"{UI}/assets/evaluation_report?view=partitions&partition={sweep}", "evaluation-report.png", "Early stopping")
            _shoot(browser, f"{UI}/assets/evaluation_report?view=checks", "gates.png", "finite_metrics")
            _shoot(browser, f"{UI}/locations/halving/jobs/sweep/playground", "launchpad.png", "auto_promote")
            _shoot(browser, f"file://{backend.store.path(report_path(sweep))}", "report.png", "Winner", height=1500)
    finally:
        page.send_signal(signal.SIGINT)
        page.wait(60)
        os.killpg(server.pid, signal.SIGINT)
        server.wait(60)


def _browser(profile: str) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or sys.exit("chromium is not installed: apt-get install chromium chromium-driver")
    quiet = ("background-networking", "component-update", "sync", "gpu", "quic")
    for argument in ("--headless=new", "--no-sandbox", f"--user-data-dir={profile}", *(f"--disable-{name}" for name in quiet)):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def _shoot(browser: webdriver.Chrome, address: str, name: str, awaited: str, *, click: str | None = None, height: int = 900) -> None:
    browser.set_window_size(1440, height)
    browser.get(address)
    WebDriverWait(browser, 60).until(lambda page: awaited in page.find_element("tag name", "body").text)
    if click:
        browser.find_element("xpath", f"//*[text()='{click}']").click()
    time.sleep(3)  # the graph and the charts still move into place
    browser.save_screenshot(str(IMAGES / name))


def _wait_for(address: str) -> None:
    for _ in range(180):
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    sys.exit(f"{address} does not answer")


if __name__ == "__main__":
    main()
