"""How long the index of runs takes for a page of the table, and to be brought up to date."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread

COLUMNS = 16
LIMIT = 200
_TEXT = f"""
Synthetic runs with 10 params, 10 metrics and a tag, written straight into the catalog's tables; one process
asks, warm. *A page* is what `GET /runs` does for its answer: the filter is parsed, the runs are counted,
{LIMIT} of them come with {COLUMNS} columns, and all of it is made JSON. *Groups* and *columns* are those of
`GET /runs/groups` and `GET /runs/columns`. Postgres runs on the same machine with its defaults. Below, runs
that the SDK has written to a folder: the first refresh reads all of them, and the next only lists.
"""
_ISSUE = "params.lr between 1e-4 and 1e-3 and status = finished order by metrics.val_loss"
QUESTIONS = {
    "newest": "",
    "the filter of the promise": _ISSUE,
    "all, by a metric": "order by metrics.val_loss desc",
    "text like": "params.optimizer like '%net%'",
    "four names": (
        "params.pretrained = true and tags.team in (mlp, resnet18) order by min(metrics.metric_3) desc, "
        "params.lr"
    ),
    "not, or": "not (params.lr < 1e-3 or metrics.val_loss > 1)",
}
"""What is asked, each a filter with the columns of a page."""
REBUILT = 40_000
BOUNDS = {10_000: 0.1, 100_000: 0.1}


def measure(setting: Setting) -> Part:
    """Measure pages, groups and names at both sizes on each database; then a refresh."""
    from tests.postgres import INSTALLED, Postgres

    part = Part("runs", "The index of runs", _TEXT)
    for promised, bound in BOUNDS.items():
        runs = setting.choose(promised // 400, promised)
        urls = {"SQLite": f"sqlite:///{setting.work}/runs-{runs}.db"}
        by_database = {"SQLite": _ask_index(setting, urls["SQLite"], runs)}
        if INSTALLED:
            with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
                server = Postgres(Path(folder))
                try:
                    by_database["Postgres"] = _ask_index(setting, server.database("runs"), runs)
                finally:
                    server.stop()
        whats = list(by_database["SQLite"]["seconds"])
        rows = [
            [
                what,
                *(spread(each["seconds"][what]) for each in by_database.values()),
                f"{by_database['SQLite']['chosen'][what]:,}",
            ]
            for what in whats
        ]
        part.tables.append(
            Table(
                ["what", *(f"{name}, s" for name in by_database), "runs or rows chosen"],
                rows,
                f"{runs:,} runs",
            )
        )
        for database, each in by_database.items():
            for what in QUESTIONS:
                part.targets.append(
                    Target(f"{runs:,} runs, {what}, {database}", "s", each["seconds"][what], bound)
                )
    if not INSTALLED:
        part.missing.append("Postgres: no initdb on this machine")
    part.tables.append(_refresh_table(setting))
    part.tables.append(_rebuild_table(setting, part))
    return part


def _ask_index(setting: Setting, url: str, runs: int) -> dict[str, Any]:
    in_child("benchmarks.run_index_fill:fill", url=url, runs=runs)
    figures: dict[str, Any] = in_child("benchmarks.run_index:ask", url=url, rounds=setting.choose(1, 15))
    return figures


def _refresh_table(setting: Setting) -> Table:
    runs = setting.choose(5, 300)
    root = setting.work / "store"
    in_child("benchmarks.stores:write_runs", root=str(root), runs=runs, metrics=10, points=1_000, segments=1)
    seconds = in_child(
        "benchmarks.run_index:refresh", root=str(root), url=f"sqlite:///{setting.work}/refreshed.db"
    )
    rows = [
        [
            f"{runs:,}",
            number(1e3 * seconds["first"] / runs),
            number(1e3 * seconds["next"]),
            number(1e3 * seconds["rebuild"] / runs),
        ]
    ]
    header = [
        "runs x 10 metrics x 1,000 points",
        "first refresh, ms a run",
        "next, ms in all",
        "rebuild, ms a run",
    ]
    return Table(header, rows, "Keeping the index up to date (SQLite)")


def _rebuild_table(setting: Setting, part: Part) -> Table:
    """Rebuild the index of the store of :func:`_refresh_table`, with its runs copied under other names."""
    runs = setting.choose(20, REBUILT)
    root = str(setting.work / "store")
    copied = in_child("benchmarks.run_index:copy_runs", root=root, runs=runs)
    figures = in_child(
        "benchmarks.run_index:rebuild_index", root=root, url=f"sqlite:///{setting.work}/rebuilt.db"
    )
    part.targets.append(
        Target(
            f"an index of {copied:,} runs made from the store, by {figures['processes']:.0f} processes",
            "s",
            [figures["seconds"]],
            60,
        )
    )
    row = [
        f"{copied:,}",
        f"{figures['processes']:.0f}",
        number(figures["seconds"]),
        number(1e3 * figures["seconds"] / copied),
    ]
    return Table(["runs", "processes", "s", "ms a run"], [row], "Making the index from the store (SQLite)")


def copy_runs(root: str, runs: int) -> int:
    """Fill a store up to so many runs by hard links to the files of those that are there.

    It returns how many there are then.
    """
    import os
    from pathlib import Path

    from halving import Store
    from halving.query.runs import list_names

    existing = list_names(Store(root))
    for place in range(len(existing), runs):
        project, run = existing[place % len(existing)]
        for folder, name in ((f"runs/project={project}", run), (f"metrics/project={project}", f"run={run}")):
            old = Path(root, folder, name)
            new = Path(root, folder, name.replace(run, f"copy-{place:06d}"))
            for file in [file for file in old.rglob("*") if file.is_file()]:
                target = new / file.relative_to(old)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, target)
    return max(runs, len(existing))


def rebuild_index(root: str, url: str) -> dict[str, float]:
    """Seconds until an empty catalog has all runs, and by how many processes."""
    import os

    from halving import Store
    from resources.analysis.run_index.rebuild import rebuild
    from resources.catalog import Catalog

    processes = min(os.cpu_count() or 1, 8)  # as `halving index` takes
    return {
        "seconds": rebuild(Store(root), Catalog(url), processes=processes).seconds,
        "processes": processes,
    }


def ask(url: str, rounds: int) -> dict[str, Any]:
    """Seconds of each question in each round, and how many runs, groups or names it chose.

    In a process of its own.
    """
    from halving.query.run_filter_parser import parse_fields, parse_filter
    from resources.analysis.run_index import select_page
    from resources.analysis.run_index.columns import select_columns
    from resources.analysis.run_index.groups import select_groups
    from resources.analysis.run_index.reading import reading
    from resources.catalog import Catalog
    from server.answers import answer

    catalog = Catalog(url)
    names = ["params.lr", "params.optimizer", "params.pretrained", "metrics.val_loss"]
    names += ["min(metrics.val_loss)", "tags.team", "run"]
    names += [f"metrics.metric_{number}" for number in range(1, 10)]
    columns = parse_fields(",".join(names))

    def page(text: str) -> int:
        with reading(catalog) as session:
            answered = select_page(session, parse_filter(text), columns=columns, limit=LIMIT)
        answer({"total": answered.total, "runs": answered.runs})
        return answered.total

    def groups() -> int:
        with reading(catalog) as session:
            return len(
                select_groups(
                    session,
                    parse_filter(""),
                    parse_fields("params.optimizer"),
                    columns=parse_fields("metrics.val_loss"),
                )
            )

    def select_names() -> int:
        with reading(catalog) as session:
            return len(select_columns(session)["params"])

    questions = {what: lambda text=text: page(text) for what, text in QUESTIONS.items()} | {
        "groups: mean and deviation": groups,
        "columns": select_names,
    }
    seconds: dict[str, list[float]] = {}
    chosen = {what: do() for what, do in questions.items()}  # warm
    for _ in range(rounds):
        for what, do in questions.items():
            began = time.perf_counter()
            do()
            seconds.setdefault(what, []).append(time.perf_counter() - began)
    return {"seconds": seconds, "chosen": chosen}


def refresh(root: str, url: str) -> dict[str, float]:
    """Seconds of a first refresh, of one without anything new (the median of several), and of a rebuild."""
    from halving import Store
    from resources.analysis.run_index import Refresher
    from resources.analysis.run_index.rebuild import rebuild
    from resources.catalog import Catalog

    store = Store(root)
    catalog = Catalog(url)
    refresher = Refresher(store, catalog)
    first = refresher.refresh().seconds
    following = statistics.median(refresher.refresh().seconds for _ in range(5))
    return {"first": first, "next": following, "rebuild": rebuild(store, catalog).seconds}
