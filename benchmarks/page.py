"""What the Compare page costs in a real browser: painting, zooming and hovering.

It is measured with many metrics and many runs.
"""

import json
import statistics
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from benchmarks.machine import ChildFailed, Setting, in_child
from benchmarks.results import Part, Table, Target, spread
from benchmarks.server_process import running_server
from benchmarks.stores import PROJECT
from tests.browser import CHROMIUM, chromium
from tests.waiting import wait_for

_TEXT = """
Headless Chromium without a GPU, the server and its store of noisy losses on one machine; files are in the
page cache. *Navigation* is that of a new browser context, so that nothing is in its cache, in a window that
has settled; for the first table it is that of a new server, too, whose memory is empty. A panel is painted
when all of its curves are on the canvas; the end of that frame counts. CPU is that of the page's main thread
from navigation on, its scripts, its decoding and its rasterizing included. *A frame* is the time from an
event of the mouse until the frame that answers it is done.
"""
SIZE = {"width": 1600, "height": 1000}
_TALL = {"width": 1600, "height": 2400}
# seconds after which a new window computes nothing more: its own start page takes half a second of CPU
_SETTLED = 2
_WATCH = """
window.measured = {painted: [], rows: 0}; window.frameEnd = (then) => requestAnimationFrame(() => { const
{port1, port2} = new MessageChannel(); port1.onmessage = () => then(performance.now()); port2.postMessage(0);
}); new PerformanceObserver((list) => { const painted = list.getEntries().filter((entry) => entry.name ===
"halving:painted"); if (painted.length) frameEnd((end) =>
{ for (const entry of painted) measured.painted.push([entry.detail, end]); });
}).observe({type: "mark", buffered: true}); new MutationObserver(() => { if (measured.rows ||
!document.querySelector("[data-run]")) return; measured.rows = -1; frameEnd((end) =>
{ measured.rows = end; }); }).observe(document, {subtree: true, childList: true});
"""
_FRAMES = """(type) => {
  window.frames_ = []; document.addEventListener(type, (event) => frameEnd((end) => frames_.push(end -
  event.timeStamp)), {capture: true});
}"""


def measure(setting: Setting) -> Part:
    """Measure panels, a zoom and hovering; then many metrics and many runs."""
    part = Part("page", "The Compare page", _TEXT)
    if not CHROMIUM.exists():
        part.missing.append(f"no {CHROMIUM} on this machine")
        return part
    with chromium() as browser:
        part.tables = [
            _panels(setting, part, browser),
            _metrics(setting, part, browser),
            _runs(setting, part, browser),
        ]
    return part


def _panels(setting: Setting, part: Part, browser: Any) -> Table:
    runs = setting.choose(3, 100)
    points = 1_000
    rounds = setting.choose(1, 5)
    root = _store(setting, "panels", runs=runs, metrics=20, points=points)
    name = f"{runs} runs x {points:,} points"
    settled = setting.choose(0, 3)
    first = []
    nine = []
    cpu = []
    zoom = []
    zoomed = []
    refined = []
    hover = []
    for _ in range(rounds):
        with (
            running_server(root, settled) as (_, port),
            _tab(setting, browser, port, f"/?top={runs}", SIZE) as page,
        ):
            first.append(_wait_for_panels(page, 1))
            nine.append(_wait_for_panels(page, 9))
            page.wait_for_load_state("networkidle")  # the panels below the ninth, too
            dragged, all_of_them = _zoom(page)
            zoom.append(dragged)
            zoomed.append(all_of_them)
            hover.append(_hover(page))
    with running_server(root, settled=0) as (_, port):
        _wait_for_index(port, runs)
        for _ in range(rounds):
            cpu.append(_cpu(setting, browser, port, f"/?top={runs}", 20))
    long = _store(
        setting, "long", runs=setting.choose(2, 20), metrics=4, points=setting.choose(5_000, 50_000)
    )
    with running_server(long, settled) as (_, port), _tab(setting, browser, port, "/?top=20", SIZE) as page:
        _wait_for_panels(page, 4)
        refined += [_zoom_to_finer_curves(page, place) for place in range(rounds)]
    part.targets += [
        Target(f"the first panel of {name} is painted after navigation", "s", first, 0.5),
        Target(f"9 panels of {name} are painted after navigation", "s", nine, 1.0),
        Target(f"20 panels of {name}: CPU of the main thread", "s", cpu, 0.5),
        Target(f"a zoom: the dragged panel of {name} is drawn", "s", zoom, 0.05),
        Target(f"a zoom: all visible panels of {name} are drawn", "s", zoomed, 0.05),
        Target("a zoom is drawn from finer curves of the server", "s", refined, 1.0),
        Target(f"a frame while hovering over {name}, p95", "s", hover, 0.033),
    ]
    return _table(f"Panels of {name}", part.targets)


def _metrics(setting: Setting, part: Part, browser: Any) -> Table:
    names = setting.choose(60, 12_000)
    root = _store(setting, "names", runs=1, metrics=names, points=2)
    usable = []
    searching = []
    with running_server(root, settled=0) as (_, port):
        _wait_for_index(port, 1)
        for _ in range(setting.choose(1, 5)):
            with _tab(setting, browser, port, "/", SIZE) as page:
                usable.append(_wait_for_panels(page, 1))
                page.evaluate(_FRAMES, "input")
                searched = f"{names - 1}"
                page.get_by_role("searchbox", name="Find metrics").press_sequentially(searched)
                page.wait_for_selector(f"[data-metric='metric_{searched}']")
                page.wait_for_function("(typed) => frames_.length >= typed", arg=len(searched))
                searching.append(max(page.evaluate("frames_")) / 1000)
    targets = [
        Target(f"{names:,} names of metrics: the first panel after navigation", "s", usable, 1.0),
        Target(f"{names:,} names of metrics: the slowest frame while searching them", "s", searching, 0.1),
    ]
    part.targets += targets
    return _table(f"{names:,} names of metrics", targets)


def _runs(setting: Setting, part: Part, browser: Any) -> Table:
    runs = setting.choose(60, 10_000)
    root = _store(setting, "runs", runs=runs, metrics=1, points=2)
    rows = []
    filtered = []
    scrolled = []
    with running_server(root, settled=0) as (_, port):
        _wait_for_index(port, runs)
        for place in range(setting.choose(1, 5)):
            with _tab(setting, browser, port, "/", SIZE) as page:
                page.wait_for_function("measured.rows > 0")
                rows.append(page.evaluate("measured.rows") / 1000)
                _wait_for_panels(page, 1)
                filtered.append(_filter(page, f"run like '%{place + 10}'"))
                page.get_by_label("Filter of runs").fill("")
                page.keyboard.press("Enter")
                page.wait_for_function(
                    "(rows) => document.querySelector('[role=grid]').ariaRowCount === rows", arg=str(runs + 1)
                )
                scrolled.append(_scroll(page))
    targets = [
        Target(f"{runs:,} runs: the first rows after navigation", "s", rows, 0.3),
        Target(f"{runs:,} runs: filtered after Enter", "s", filtered, 0.2),
        Target(f"{runs:,} runs: a frame while scrolling, p95", "s", scrolled, 0.033),
    ]
    part.targets += targets
    return _table(f"{runs:,} runs", targets)


def _table(title: str, targets: list[Target]) -> Table:
    return Table(["what", "s"], [[target.what, spread(target.values)] for target in targets], title)


def _store(setting: Setting, name: str, *, runs: int, metrics: int, points: int) -> str:
    root = str(setting.work / name)
    names = in_child(
        "benchmarks.stores:write_runs", root=root, runs=runs, metrics=metrics, points=points, segments=1
    )
    if points > 2:
        in_child("benchmarks.stores:compact", root=root, runs=names)
    with running_server(root, settled=0) as (_, port):
        _wait_for_index(port, runs)  # what follows measures the page, not the first look at the store
    setting.settle()
    return root


def _wait_for_index(port: int, runs: int) -> None:
    def total() -> int:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/api/v1/runs?limit=1&project={quote(PROJECT)}"
        ) as answer:
            return int(json.load(answer)["total"])

    wait_for(lambda: total() >= runs, 600, f"{runs} runs are in the index")


@contextmanager
def _tab(setting: Setting, browser: Any, port: int, path: str, size: dict[str, int]) -> Iterator[Any]:
    context = browser.new_context(viewport=size, bypass_csp=True)  # its predicates are evaluated
    page = context.new_page()
    page.add_init_script(_WATCH)
    time.sleep(setting.choose(0, _SETTLED))
    page.goto(f"http://127.0.0.1:{port}{path}")
    yield page
    context.close()


def _wait_for_panels(page: Any, panels: int) -> float:
    """Seconds from navigation until so many panels were painted."""
    try:
        page.wait_for_function(
            "(count) => new Set(measured.painted.map(([name]) => name)).size >= count", arg=panels
        )
    except Exception as error:
        said = " ".join(page.locator("main").inner_text().split())
        raise ChildFailed(f"{panels} panels are not painted; the page says: {said[:300]}") from error
    firsts: dict[str, float] = {}
    for name, end in page.evaluate("measured.painted"):
        firsts.setdefault(name, end / 1000)
    return sorted(firsts.values())[panels - 1]


def _cpu(setting: Setting, browser: Any, port: int, path: str, panels: int) -> float:
    """Seconds that the main thread of a new tab computed until so many panels were painted."""
    with _tab(setting, browser, port, "/api/v1/health", _TALL) as page:
        # the address's process is there, and has nothing to do
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def task_seconds() -> float:
            metrics = {
                each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]
            }
            return float(metrics["TaskDuration"])

        before = task_seconds()
        page.goto(f"http://127.0.0.1:{port}{path}")
        _wait_for_panels(page, panels)
        return task_seconds() - before


def _drag(page: Any, place: int = 0) -> None:
    box = page.locator(".panel .u-over").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * (0.2 + 0.05 * place), box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 42, steps=4)
    page.mouse.up()


def _zoom(page: Any) -> tuple[float, float]:
    """Seconds from letting go until the dragged panel, and until all visible panels show the window."""
    page.evaluate(_FRAMES, "mouseup")
    page.evaluate(
        "document.addEventListener('mouseup', (event) => { window.let_go = event.timeStamp; }, {capture: "
        "true, once: true})"
    )
    others = page.locator("figure.panel").count() - 1
    _drag(page)
    since = "measured.painted.filter(([, end]) => end > let_go)"
    page.wait_for_function(
        f"(others) => frames_.length > 0 && new Set({since}.map(([name]) => name)).size >= others", arg=others
    )
    dragged, all_of_them = page.evaluate(f"[frames_[0], Math.max(...{since}.map(([, end]) => end)) - let_go]")
    _whole(page)
    return float(dragged / 1000), float(max(dragged, all_of_them) / 1000)


def _zoom_to_finer_curves(page: Any, place: int) -> float:
    """Zoom to a new window; seconds from letting go until all panels show the server's finer curves."""
    page.evaluate(
        "document.addEventListener('mouseup', (event) => { window.let_go = event.timeStamp; }, {capture: "
        "true, once: true})"
    )
    with page.expect_response(
        lambda response: "/curves" in response.url and '"low":' in (response.request.post_data or "")
    ):
        _drag(page, place)
    count = page.evaluate("measured.painted.length")
    page.wait_for_function("(count) => measured.painted.length > count", arg=count - 1)
    seconds = page.evaluate("(measured.painted.at(-1)[1] - let_go) / 1000")
    _whole(page)
    return float(seconds)


def _whole(page: Any) -> None:
    count = page.evaluate("measured.painted.length")
    page.get_by_role("button", name="Whole range").click()
    page.wait_for_function("(count) => measured.painted.length > count", arg=count)


def _hover(page: Any) -> float:
    box = page.locator(".panel .u-over").first.bounding_box()
    return _p95(
        page,
        "mousemove",
        lambda part: page.mouse.move(
            box["x"] + box["width"] * part, box["y"] + box["height"] * (0.4 + 0.5 * part)
        ),
    )


def _scroll(page: Any) -> float:
    box = page.get_by_role("grid").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 200)
    return _p95(page, "wheel", lambda part: page.mouse.wheel(0, 200 + 400 * part))


def _p95(page: Any, event: str, move: Callable[[float], None], count: int = 60) -> float:
    page.evaluate(_FRAMES, event)
    for place in range(count):
        move((place + 1) / (count + 1))
    page.wait_for_function("(count) => frames_.length >= count", arg=count // 2)
    return float(statistics.quantiles(page.evaluate("frames_"), n=20)[-1] / 1000)


def _filter(page: Any, text: str) -> float:
    """Seconds from Enter until the table has the filter's runs."""
    page.evaluate(
        """() => {
          const grid = document.querySelector("[role=grid]"), before = grid.getAttribute("aria-rowcount");
          document.addEventListener("keydown", (event) => {
            if (event.key === "Enter") window.entered = event.timeStamp;
          }, {capture: true, once: false});
          window.filtered = 0;
          const seen = new MutationObserver(() => {
            if (grid.getAttribute("aria-rowcount") === before) return;
            seen.disconnect();
            frameEnd((end) => { filtered = end - entered; });
          });
          seen.observe(grid, {attributes: true});
        }"""
    )
    page.get_by_label("Filter of runs").fill(text)
    page.keyboard.press("Enter")
    page.wait_for_function("filtered > 0")
    return float(page.evaluate("filtered") / 1000)
