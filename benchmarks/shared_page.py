"""What a shared page costs: its bytes, the time to make it, and the time until a browser has drawn it."""

import time
from pathlib import Path
from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, spread
from tests.browser import CHROMIUM, chromium

_TEXT = """
Runs of noisy losses, compacted and in the index, each with ten metrics; the page has all of their curves.
*Made* is the time of a process that has imported what it needs. *Drawn* is the time in headless Chromium
without a GPU and without a network, from opening the file until all ten charts are painted.
"""
_METRICS = 10
_PAINTED = "performance.getEntriesByName('halving:painted')"


def measure(setting: Setting) -> Part:
    """Measure pages of 100 runs with ten curves each: of 1,000 points, and of 100,000."""
    part = Part("shared", "A shared page", _TEXT)
    if not CHROMIUM.exists():
        part.missing.append(f"no {CHROMIUM} on this machine")
        return part
    rows = []
    runs = setting.choose(4, 100)
    with chromium() as browser:
        for points in setting.choose((200,), (1_000, 100_000)):
            root = str(setting.work / str(points))
            sizes = {"runs": runs, "metrics": _METRICS, "points": points, "segments": 1}
            names = in_child("benchmarks.stores:write_runs", root=root, **sizes)
            in_child("benchmarks.stores:compact", root=root, runs=names)
            setting.settle()
            made = in_child("benchmarks.shared_page:make", root=root, rounds=setting.choose(1, 5))
            drawn = [_draw(browser, made["file"]) for _ in range(setting.choose(1, 5))]
            name = f"{runs} runs x {_METRICS} metrics x {points:,} points"
            part.targets += [
                Target(f"a page of {name}", "MB", [made["bytes"] / 1e6], 3.0),
                Target(f"a page of {name} is drawn after opening it", "s", drawn, 3.0),
            ]
            size = f"{made['bytes'] / 1e6:.2f} MB"
            rows.append([name, size, f"{made['rows']}", spread(made["seconds"]), spread(drawn)])
    header = ["page", "file", "rows of a curve, at most", "made, s", "drawn, s"]
    part.tables = [Table(header, rows, "Pages")]
    return part


def make(root: str, rounds: int) -> dict[str, Any]:
    """Make a page of all runs several times. To be called in a process of its own."""
    from halving.store.store import Store
    from resources.analysis.run_index import Refresher
    from resources.catalog.opening import open_catalog
    from server.sharing.page import build
    from server.sharing.target import Target as PageTarget

    store = Store(root)
    catalog = open_catalog(store)
    Refresher(store, catalog).refresh()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        page = build(store, catalog, PageTarget(kind="view", name="top=500"))
        seconds.append(time.perf_counter() - began)
    file = Path(root, "page.html")
    file.write_bytes(page.html)
    return {"file": file.as_uri(), "bytes": len(page.html), "rows": page.rows, "seconds": seconds}


def _draw(browser: Any, address: str) -> float:
    context = browser.new_context(viewport={"width": 1600, "height": 1000}, offline=True, bypass_csp=True)
    page = context.new_page()
    page.goto(address)
    page.wait_for_function(f"{_PAINTED}.length >= {_METRICS}")
    milliseconds = page.evaluate(f"{_PAINTED}[{_METRICS - 1}].startTime")
    context.close()
    return float(milliseconds / 1000)
