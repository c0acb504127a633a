"""Take the pictures in ``docs/images``, on the data of ``make demo``: ``make screenshots``.

They are of Dagster's UI, the page and the report.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import yaml
from playwright.sync_api import Browser, Page

from commands.shared import newest_sweep
from resources.analysis.summary import summarize
from resources.backend import Backend
from resources.evaluation.report import report_path
from tests.browser import CHROMIUM, MISSING, chromium

IMAGES = Path(__file__).parent / "images"
DEMO = Path(__file__).parents[1] / "sweeps" / "digits.yaml"
PORT = 3939
UI = f"http://127.0.0.1:{PORT}"
PAGE_PORT = 3940
PAGE = f"http://127.0.0.1:{PAGE_PORT}"


def main() -> None:
    """Serve the UI, visit the pages, and stop it again."""
    if not CHROMIUM.exists():
        sys.exit(MISSING)
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
    page = subprocess.Popen(
        [sys.executable, "-m", "halving.cli.main", "serve", "--port", str(PAGE_PORT)],
        stdout=subprocess.DEVNULL,
    )
    IMAGES.mkdir(exist_ok=True)
    try:
        _wait_for(f"{UI}/server_info")
        _wait_for(f"{PAGE}/api/v1/ready")
        with chromium() as browser:
            _shoot(browser, f"{PAGE}/?columns=params.lr,metrics.val_accuracy", "compare.png", "val_accuracy")
            _shoot(browser, f"{PAGE}/sweeps/{sweep}", "sweep-page.png", "Rung ladder")
            _shoot(browser, f"{PAGE}/runs/{project}/{best.key}", "run-page.png", "Curves")
            _shoot(browser, f"{PAGE}/models/{project}", "model-page.png", "Gates")
            _shoot(
                browser,
                f"{UI}/locations/halving/asset-groups/halving/lineage",
                "asset-graph.png",
                "evaluation_report",
            )
            _shoot(
                browser,
                f"{UI}/assets/trial?view=partitions&partition={best.key}",
                "trial.png",
                "objective",
                height=1107,
            )
            _shoot(browser, f"{UI}/assets/trial", "trial-plots.png", "objective", click="Plots", height=857)
            _shoot(
                browser,
                f"{UI}/assets/evaluation_report?view=partitions&partition={sweep}",
                "evaluation-report.png",
                "Early stopping",
            )
            _shoot(browser, f"{UI}/assets/evaluation_report?view=checks", "gates.png", "finite_metrics")
            _shoot(browser, f"{UI}/locations/halving/jobs/sweep/playground", "launchpad.png", "auto_promote")
            _shoot(
                browser,
                f"file://{backend.store.path(report_path(sweep))}",
                "report.png",
                "Winner",
                height=1357,
            )
            _shoot_trusted(browser)
    finally:
        page.send_signal(signal.SIGINT)
        page.wait(60)
        os.killpg(server.pid, signal.SIGINT)
        server.wait(60)


def _shoot(
    browser: Browser, address: str, name: str, awaited: str, *, click: str | None = None, height: int = 757
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": height})
    page.set_default_timeout(60_000)
    page.goto(address)
    page.get_by_text(awaited).first.wait_for()
    if click:
        page.get_by_text(click, exact=True).first.click()
    time.sleep(3)  # The graph and the charts still move into place.
    page.screenshot(path=IMAGES / name)
    page.close()


def _shoot_trusted(browser: Browser) -> None:
    """Take pictures of the report of a sweep with slices and a final training, which the demo has not."""
    changes = {
        "name": "trusted",
        "max_trials": 12,
        "slices": ["label", "label >= 5"],
        "final": {"seeds": 3, "on": ["train", "validation"]},
    }
    with tempfile.TemporaryDirectory(prefix="halving-pictures-") as root:
        spec = Path(root) / "trusted.yaml"
        spec.write_text(yaml.safe_dump({**yaml.safe_load(DEMO.read_text()), **changes}))
        lab = {**os.environ, "HALVING_ROOT": root, "DAGSTER_HOME": str(Path(root) / "dagster")}
        subprocess.run([sys.executable, "-m", "halving.cli.main", "sweep", str(spec)], env=lab, check=True)
        (report,) = Path(root).glob("reports/*.html")
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(f"file://{report}")
        _clip(page, "Winner", "The search", "trusted-report.png")
        _clip(page, "Slices", "The winner's predictions", "trusted-slices.png")
        page.close()


def _clip(page: Page, first: str, after: str, name: str) -> None:
    """Take a picture of what stands between two headings."""
    top, below = (
        page.get_by_role("heading", name=heading, exact=True).evaluate("(heading) => heading.offsetTop")
        for heading in (first, after)
    )
    page.screenshot(
        path=IMAGES / name, full_page=True, clip={"x": 0, "y": top - 20, "width": 1440, "height": below - top}
    )


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
