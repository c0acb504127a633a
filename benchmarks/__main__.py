"""``python -m benchmarks``: measure, keep the results, write the pages."""

import argparse
import importlib
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks import machine, report, ten_thousand
from benchmarks.results import Part, load

# In the order of the page. The heaviest come last, so that what they leave in the page cache disturbs nobody.
PARTS = (
    "log",
    "training",
    "determinism",
    "durable",
    "size",
    "startup",
    "recovery",
    "outage",
    "saves",
    "peers",
    "following",
    "queries",
    "runs",
    "server",
    "agents",
    "ingest",
    "page",
    "pages",
    "shared",
    "mlflow",
    "search",
    "gates",
    "alerts",
    "rollback",
    "objects",
    "compaction",
    "index",
    "cold",
    "snapshots",
    "loading",
    "gangs",
    "gpu",
    "scale",
    "decisions",
    "catalog",
    "shares",
    "suggestions",
    "driver",
    "features",
    "dagster",
    "cluster",
)
PAGE = machine.CHECKOUT / "docs" / "benchmarks.md"


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen parts; return 1 if one of them broke."""
    options = _parse(arguments)
    # with it each cold process compiles all it imports, which no user's does
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results = options.folder / "results"
    if options.quick:
        results = options.folder / "quick"
    broken = []
    unmeasured = []
    chosen = [name for name in PARTS if name in ((options.parts + options.only) or PARTS)]
    parts = []
    for name in chosen:
        print(f"{name}: measuring", file=sys.stderr, flush=True)
        try:
            parts.append(_measure(name, options.folder, options.quick))
        except Exception as error:  # noqa: BLE001
            # whatever it is, it is this part's: the others took their time
            reason = str(error)
            if not isinstance(error, machine.ChildFailed):
                reason = f"{type(error).__name__}: {error}"
            print(f"{name}: broke: {reason}", file=sys.stderr, flush=True)
            broken.append(Part(name, name, "This part broke.", missing=[reason]))
            continue
        if parts[-1].tables:
            parts[-1].save(results)
        else:  # nothing to measure it on here: what was kept is better than nothing
            unmeasured.append(parts.pop())
    everything = len(chosen) == len(PARTS)
    out = options.out
    if out is None and everything and not options.quick:
        out = PAGE
    if out is None:
        print(report.page(parts + unmeasured + broken))
    else:
        by_name = {part.name: part for part in [*unmeasured, *_load_kept(results), *broken, *parts]}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(report.page([by_name[name] for name in PARTS if name in by_name]))
        print(f"written: {out}", file=sys.stderr)
    if out == PAGE:
        # worked out from these results; it says which of them is missing
        ten_thousand.main(["--results", str(results)])
    return 1 if broken else 0


def _end(number: int, _: object) -> None:
    machine.end_children()
    sys.exit(128 + number)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Halving and write docs/benchmarks.md and docs/scale.md.",
    )
    parser.add_argument(
        "parts", nargs="*", default=[], metavar="PART", help=f"only these: {', '.join(PARTS)}"
    )
    parser.add_argument("--only", action="append", default=[], choices=PARTS, help="the same, as an option")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a smoke run of small sizes: the figures mean nothing, the page is printed",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=machine.CHECKOUT / ".bench",
        help="where data, environments and results are kept",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help=(
            "the page to write, with what was kept of the other parts (default after a whole run: "
            "docs/benchmarks.md)"
        ),
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"part {unknown[0]!r} is not accepted: give some of {', '.join(PARTS)}")
    options.folder = options.folder.absolute()
    return options


def _measure(name: str, folder: Path, quick: bool) -> Part:
    folder.mkdir(parents=True, exist_ok=True)
    facts = machine.facts(folder)
    began = time.monotonic()
    with machine.work_folder(folder, name) as work:
        module = importlib.import_module(f"benchmarks.{_MODULES.get(name, name)}")
        part: Part = module.measure(machine.Setting(work, folder, quick))
    part.facts = facts | {"seconds": round(time.monotonic() - began)}
    return part


def _load_kept(results: Path) -> list[Part]:
    return [load(path) for path in (results / f"{name}.json" for name in PARTS) if path.exists()]


_MODULES = {
    "runs": "run_index",
    "index": "index_on_s3",
    "peers": "peers.compare",
    "pages": "peers.pages",
    "shared": "shared_page",
    "mlflow": "mlflow_server",
    "scale": "search_scale",
    "decisions": "search_latency",
    "shares": "catalog_shares",
    "suggestions": "search_suggestions",
    "driver": "search_driver",
    "dagster": "dagster_runs",
    "cluster": "cluster_api",
}

if __name__ == "__main__":
    # A SIGTERM must end the servers that a part has started: by default it would leave Postgres and Dagster's
    # daemon running.
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
