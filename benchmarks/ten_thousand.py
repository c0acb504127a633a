"""``python -m benchmarks.ten_thousand``: docs/scale.md, worked out from what the benchmarks measured on this
machine.
"""

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.assumptions import (
    CHECKPOINT_GB,
    GOES_ON,
    KEPT_DAYS,
    LOG_STREAMS,
    LOGGED,
    RUNG,
    S3_ANSWER,
    SERIES,
    SLOTS,
    SWEEP,
    TRIALS,
)
from benchmarks.compaction import ATTEMPTS, PROMISED, SEGMENTS, WORKERS
from benchmarks.machine import CHECKOUT
from benchmarks.results import Part, load, number

PAGE = CHECKOUT / "docs" / "scale.md"

HOURS = 730  # of a month
MONTH = HOURS * 3600.0


class Price(NamedTuple):
    """US dollars, and where the figure is from."""

    what: str
    dollars: float
    source: str


PRICES = {
    "s3_gb": Price(
        "S3 Standard, a GB and month",
        0.023,
        "list price, us-east-1, March 2026, by https://cloudburn.io/blog/amazon-s3-pricing",
    ),
    "s3_writes": Price(
        "S3 Standard, a million PUT, POST or LIST",
        5.0,
        (
            "list price, US East, by "
            "https://devnotes.tech/understanding-aws-s3-pricing-a-complete-cost-breakdown-with-examples"
        ),
    ),
    "s3_reads": Price("S3 Standard, a million GET or HEAD", 0.4, "the same"),
    "disk_gb": Price(
        "RDS, a GB of gp3 and month",
        0.115,
        (
            "list price, us-east-1, June 2026, by "
            "https://www.usage.ai/blogs/aws/reserved-instances/rds/pricing-calculator/"
        ),
    ),
    "postgres_core": Price(
        "RDS for PostgreSQL (db.m6i), a core and hour",
        0.09,
        "list price, RDS for PostgreSQL, us-east-1, as remembered in November 2026: check before you budget",
    ),
    "core": Price(
        "EC2 (m7i), a core and hour",
        0.05,
        "list price, us-east-1, 2026, by https://c3x.dev/blog/m5-vs-m6i-vs-m7i-cost-performance",
    ),
    "gpu": Price("a GPU and hour", 2.0, "assumed: between a small one and a rented H100"),
}


class Missing(RuntimeError):
    """A part has not been measured yet; the message names the command."""


class Contradicted(RuntimeError):
    """A sentence of the page is not what was measured; the message has both."""


class Measured:
    """The parts' tables, as they were kept."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._parts: dict[str, Part] = {}

    def cell(self, part: str, row: str, column: str, table: str = "", *, also: str = "") -> float:
        """The number of a cell (of several rounds the median).

        ``row`` begins the first cell, ``also`` another one of that row.

        Raises:
            Missing: there is none.
        """
        for found in self._part(part).tables:
            if table and found.title != table:
                continue
            for cells in found.rows:
                if column in found.header and cells[0].startswith(row) and (not also or also in cells[1:]):
                    return float(cells[found.header.index(column)].split()[0].replace(",", ""))
        raise Missing(f"no {column!r} of {row!r} in what {part!r} measured: run python -m benchmarks {part}")

    def _part(self, part: str) -> Part:
        if part not in self._parts:
            path = self._results / f"{part}.json"
            if not path.exists():
                raise Missing(f"{path} is missing: run python -m benchmarks {part} --out docs/benchmarks.md")
            self._parts[part] = load(path)
        return self._parts[part]


def figures(measured: Measured) -> dict[str, float]:
    """What ten thousand trials ask for, each figure from a measurement of its part."""
    from halving.trial import mailbox
    from halving.trial_process import pod
    from resources.execution.watches import OBJECT_STORE_LOOK_SECONDS
    from resources.scheduling.leases import HEARTBEAT_SECONDS

    cell = measured.cell
    production = _production()
    found: dict[str, float] = {"look": OBJECT_STORE_LOOK_SECONDS, "heartbeat": HEARTBEAT_SECONDS}
    attempt = RUNG / (1 - GOES_ON)  # seconds on average: until a rung where the trial is paused
    found["attempt_minutes"] = attempt / 60
    found["attempts"] = starts = TRIALS / attempt  # begun a second
    found["decisions"] = TRIALS / RUNG
    found["calls"] = found["decisions"] + starts
    found["heartbeats"] = TRIALS / HEARTBEAT_SECONDS

    found["points"] = points = TRIALS * SERIES * LOGGED
    found["log_us"] = 10 * cell("log", "tight", "p50, µs", also="busy")
    found["log_share"] = 100 * found["log_us"] * LOGGED / 1e6
    found["drained"] = 1e6 * cell("durable", "", "M points/s")
    found["drain"] = 100 * SERIES * LOGGED / found["drained"]
    found["segments"] = segments_of(attempt)
    found["puts"] = starts * found["segments"]
    found["puts_fixed"] = TRIALS / 5
    found["puts_long"] = TRIALS / 60
    mixed = {
        name: cell("objects", "mixed", name, "Segments") for name in ("15 s, B/point", "compacted, B/point")
    }
    found["segment_bytes"] = mixed["15 s, B/point"]
    found["compacted_bytes"] = mixed["compacted, B/point"]
    found["worst_bytes"] = cell("objects", "losses", "compacted, B/point", "Segments")
    found["mb"] = points * found["segment_bytes"] / 1e6
    found["tb_month"] = points * found["compacted_bytes"] * MONTH / 1e12
    found["points_kept_tb"] = points * found["compacted_bytes"] * KEPT_DAYS * 86_400 / 1e12

    def requests(what: str, column: str) -> float:
        return cell("objects", what, column, "Requests")

    first_look = requests(f"a first look at {SEGMENTS_COMPACTED} segments", "reads") / SEGMENTS_COMPACTED
    found["upload_interval"] = production["compute_logs"]["config"]["upload_interval"]
    for kind in ("writes", "reads"):
        each = {
            "opening": requests("opening a run", kind),
            "segments": found["segments"] * requests("a segment", kind),
            "checkpoints": 2 * requests("a checkpoint", kind),
            # A look lists; and each segment is read once, by the first look that finds it.
            "looks": attempt / found["look"] * requests("the next look", kind)
            + (found["segments"] * first_look if kind == "reads" else 0),
            "logs": attempt / found["upload_interval"] * LOG_STREAMS if kind == "writes" else 0.0,
            "ending": requests("ending a run", kind),
            "compaction": _compaction_requests(cell, kind)
            * (1 if kind == "writes" else found["segments"] / SEGMENTS),
        }
        found |= {f"{name}_{kind}": value for name, value in each.items()}
        found[f"{kind}_attempt"] = sum(each.values())
        found[f"{kind}_second"] = starts * found[f"{kind}_attempt"]
    found["segment_second"] = found["segments_writes"] * starts
    found["asked_back_look"] = pod._ASKED_BACK_LOOK_SECONDS
    found["mail_second"] = TRIALS / mailbox._LONGEST_SECONDS + TRIALS / found["asked_back_look"]
    found["compaction_rate"] = cell("compaction", "", "attempts/s", "Both")
    found["compaction_hour"] = 3600 * found["compaction_rate"]
    found["compaction_workers"] = math.ceil(WORKERS * starts / found["compaction_rate"])
    found["compaction_cores"] = points / (
        1e6 * cell("queries", "100 runs x 10 metrics x 100,000", "M points/s", "Compaction of these stores")
    )
    found |= (
        _catalog(cell, found)
        | _dagster(cell, starts)
        | _kubernetes(cell, starts, production)
        | _dollars_of_s3(found)
    )
    found["catalog_gb_month"] = starts * MONTH * found["catalog_bytes"] / 1e9
    found["postgres_cores_rented"] = 2 ** math.ceil(math.log2(max(2.0, 2 * found["postgres_cores"])))
    found["dollars_postgres"] = found["postgres_cores_rented"] * _price("postgres_core") * HOURS + found[
        "catalog_gb_month"
    ] * _price("disk_gb")
    found["dollars_control"] = 16 * _price("core") * HOURS
    found["dollars"] = sum(value for name, value in found.items() if name.startswith("dollars_"))
    # Beside the sum, for who chooses them.
    found["more_events"] = found["event_gb_month"] * _price("disk_gb")
    found["more_mail"] = found["mail_second"] * MONTH / 1e6 * _price("s3_reads")
    found["gpus"] = TRIALS * _price("gpu") * HOURS
    found["share_of_gpus"] = 100 * found["dollars"] / found["gpus"]
    _hold(found)
    return found


def _compaction_requests(cell: Callable[..., float], kind: str) -> float:
    """Requests of an attempt until it is compacted and its segments are deleted."""
    return sum(
        cell("compaction", phase, kind, f"{ATTEMPTS} attempts, {WORKERS} workers")
        for phase in ("compacted", "cleaned")
    )


def _catalog(cell: Callable[..., float], found: dict[str, float]) -> dict[str, float]:
    from benchmarks.catalog import LOADS, WRITES

    here = cell("catalog", "Halving: a heartbeat", "writes/s of all", "Saturated")
    heartbeat = cell("catalog", "Halving: a heartbeat", "p50, ms", "Saturated")
    known = {
        "promised_writes": WRITES,
        "heartbeats_here": here,
        "heartbeats_core": here / 2,
        "bare_here": cell("catalog", "bare psycopg", "writes/s of all", "Saturated"),
        "heartbeat_p50": heartbeat,
        "busy": found["heartbeats"] * heartbeat / 1000,
        "catalog_bytes": cell("catalog", "", "bytes a trial, with indexes", "What is kept"),
        "catalog_rows": cell("catalog", "", "rows a trial", "What is kept"),
        "postgres_cores": 2 * found["heartbeats"] / here,
    }
    known["million_gb"] = known["catalog_bytes"] / 1000
    known |= _shares(cell)
    for name, asked in zip(("promised", "full"), LOADS[1:], strict=True):
        for word, column in (
            ("done", "heartbeats/s done"),
            ("p50", "next trial p50, ms"),
            ("p99", "next trial p99, ms"),
        ):
            known[f"{name}_{word}"] = cell(
                "catalog", asked.what, column, "Next trial and decisions, with heartbeats beside them"
            )
    return known


def _shares(cell: Callable[..., float]) -> dict[str, float]:
    """How trials are handed out where projects share the machines."""
    from benchmarks import catalog_shares as shares

    known: dict[str, float] = {
        "shares_sweeps": shares.SWEEPS,
        "shares_projects": shares.PROJECTS,
        "shares_waiting": shares.WAITING,
    }
    for name, fleet in (("alone", shares.ALONE), ("shared", shares.ROOM), ("scarce", shares.FULL)):
        known[f"{name}_next"] = cell("shares", fleet, "next trials/s", shares.SATURATED)
        for word, column in (("p50", "next trial p50, ms"), ("p99", "next trial p99, ms")):
            known[f"{name}_{word}"] = cell("shares", fleet, column, shares.PACED)
    known["shared_part"] = 100 * known["shared_next"] / known["alone_next"]
    return known


def _dagster(cell: Callable[..., float], starts: float) -> dict[str, float]:
    known = {"requested": cell("dagster", "requested", "runs/s", "Runs")}
    for threads in (1, 4, 16):
        known[f"launched_{threads}"] = cell("dagster", "launched", "runs/s", "Runs", also=str(threads))
    known["launched_own"] = cell("dagster", "Dagster's own storage", "runs/s", "Runs")
    known["launched_full"] = cell("dagster", "launched", "runs/s", "Runs", also="10,000")
    known["rows_run"] = cell("dagster", "", "rows in the event log", "Real runs, medians")
    known["kb_run"] = cell("dagster", "", "bytes of events", "Real runs, medians") / 1000
    known["run_overhead"] = cell("dagster", "", "from start to end, s", "Real runs, medians")
    known["event_gb_month"] = starts * known["kb_run"] * MONTH / 1e6
    known["partition_hours"] = PARTITIONS / starts / 3600
    known["jobs"] = math.ceil(TRIALS / SLOTS)
    for sensor in ("start_trials", "retry_crashed_trials", "stop_diverged_trials"):
        for tick in ("first", "next"):
            known[f"{sensor}_{tick}"] = cell(
                "dagster", f"`{sensor}`", f"{tick} tick, s", "Ticks", also="100,000"
            )
    return known


def _kubernetes(cell: Callable[..., float], starts: float, production: dict[str, Any]) -> dict[str, float]:
    ended_for = production["run_launcher"]["config"]["run_k8s_config"]["job_spec_config"][
        "ttl_seconds_after_finished"
    ]
    kilobytes = cell("cluster", "1", "KB kept")
    return {
        "create_ms": cell("cluster", "1", "create a Job, p50 ms"),
        "jobs_here": cell("cluster", "16", "Jobs/s"),
        "kb_job": kilobytes,
        "monitor_seconds": TRIALS * cell("cluster", "1", "read a Job, p50 ms") / 1000,
        "step_checks": TRIALS / STEP_CHECK,
        "ended_for": ended_for,
        "ended_jobs": ended_for * starts,
        "etcd_mb": (TRIALS + ended_for * starts) * kilobytes / 1000,
    }


def _dollars_of_s3(found: dict[str, float]) -> dict[str, float]:
    days, best_of_sweep = _checkpoints_kept()
    running = TRIALS * 2 * CHECKPOINT_GB / 1000
    # At most: when no trial is paused and promoted later. What is deleted is deleted some days after the end
    # of its sweep.
    ended_gb = found["attempts"] * 86_400 * CHECKPOINT_GB  # a day
    found["checkpoint_days"] = days
    found["checkpoint_top"] = best_of_sweep
    ended = ended_gb * days / 1000
    best = ended_gb * HOURS / 24 * best_of_sweep / SWEEP / 1000
    return {
        "checkpoint_tb": running,
        "ended_tb": ended,
        "best_tb_month": best,
        "undeleted_tb_month": ended_gb * HOURS / 24 / 1000,
        "dollars_writes": found["writes_second"] * MONTH / 1e6 * _price("s3_writes"),
        "dollars_reads": found["reads_second"] * MONTH / 1e6 * _price("s3_reads"),
        "dollars_points": 1000 * found["points_kept_tb"] * _price("s3_gb"),
        "dollars_checkpoints": 1000 * running * _price("s3_gb"),
        "dollars_ended": 1000 * ended * _price("s3_gb"),
        "dollars_best": 1000 * best * _price("s3_gb"),
    }


def _checkpoints_kept() -> tuple[float, float]:
    """For how many days the shipped policy keeps an ended trial's checkpoints, and of how many of a sweep's
    best for ever.
    """
    import yaml

    from resources.retention.policy import parse_policy
    from resources.retention.policy_file import SHIPPED

    kept = parse_policy(yaml.safe_load(SHIPPED.read_bytes()), str(SHIPPED)).checkpoints
    if kept.days is None or kept.top_k is None:
        raise Contradicted(
            f"docs/scale.md would say that {SHIPPED} deletes checkpoints, which it does not: change "
            "benchmarks/ten_thousand.md"
        )
    return int(kept.days) if kept.days == int(kept.days) else kept.days, kept.top_k


def _price(name: str) -> float:
    return PRICES[name].dollars


def _production() -> dict[str, Any]:
    """Dagster's settings in production."""
    import yaml

    settings: dict[str, Any] = yaml.safe_load(
        (CHECKOUT / "deploy" / "kubernetes" / "base" / "dagster.yaml").read_text()
    )
    return settings


def _hold(found: dict[str, float]) -> None:
    """Hold the page's sentences against the figures.

    Raises:
        Contradicted: one of them is not so any more.
    """
    ticks = [value for name, value in found.items() if name.endswith("_trials_next")]
    for sentence, holds in (
        ("a process writes points faster than its trial logs them", found["drain"] < 100),
        ("a warm sensor's tick stays below its 60 s", max(ticks) < 60),
        ("decisions and next trials are small beside heartbeats", found["calls"] < 0.1 * found["heartbeats"]),
        (
            "trials are handed out where projects share the machines as fast as they begin",
            found["shared_next"] >= found["attempts"],
        ),
        (
            "the compaction's workers keep up with 10,000 ended attempts an hour",
            found["compaction_hour"] >= PROMISED,
        ),
        ("the objects of all trials stay below etcd's 2 GB", found["etcd_mb"] < 2_000),
    ):
        if not holds:
            raise Contradicted(
                f"docs/scale.md would say that {sentence}, which was measured otherwise: change "
                "benchmarks/ten_thousand.md"
            )


def walls(found: dict[str, float]) -> list[tuple[float, str, str]]:
    """Trials at once at which something ends, what it is, and what moves it: the nearest first."""
    attempt = TRIALS / found["attempts"]
    ends = [
        (
            found["compaction_rate"] * attempt,
            f"compaction by {WORKERS} workers",
            "more workers of `compact_metrics`, or several runs of it",
        ),
        (
            PARTITIONS / 86_400 * attempt,
            "with sensors: 100,000 partitions within a day",
            "the one job; deleting old sweeps' partitions",
        ),
        (found["launched_full"] * attempt, "with sensors: launching", "the one job; longer rungs"),
        (
            found["shared_next"] * attempt,
            "where projects share the machines: trials handed out one after another",
            "longer rungs; a faster core and disk of Postgres",
        ),
        (
            found["heartbeats_here"] * found["heartbeat"],
            "heartbeats, Postgres and its clients on 2 cores",
            "cores of Postgres",
        ),
        (
            found["jobs_here"] * attempt,
            "with sensors: Jobs created a second",
            "the one job; longer rungs; a larger control plane",
        ),
        (
            TRIALS * 60 / found["start_trials_next"],
            "with sensors: a tick of 60 s",
            "more sweeps ended; the one job",
        ),
        (
            TRIALS * S3_PREFIX / found["writes_second"],
            "writes to one prefix of S3",
            "S3 splits prefixes by itself; longer rungs",
        ),
    ]
    return sorted(ends)


PARTITIONS = 100_000  # of an asset, from where on Dagster's pages and ticks get slow
S3_PREFIX = 3_500  # writes a second
SEGMENTS_COMPACTED = 20  # that the part `objects` looks at
STEP_CHECK = 5.0  # seconds between two looks at a step's Job, of a one-job sweep


def segments_of(seconds: float) -> float:
    """Segments that an attempt of this age has written in an object store: one every 5 s, every twentieth of
    its age, then every 60 s.
    """
    rising = min(max(seconds, 100.0), 1_200.0)
    return min(seconds, 100.0) / 5 + 20 * math.log(rising / 100) + max(0.0, seconds - 1_200) / 60


def page(found: dict[str, float]) -> str:
    """The page's Markdown."""
    template = (Path(__file__).with_name("ten_thousand.md")).read_text()
    constants: dict[str, Any] = {
        name: f"{value:,}" if isinstance(value, int) else number(value)
        for name, value in globals().items()
        if name.isupper() and isinstance(value, int | float) and not isinstance(value, bool)
    }
    constants["S3_ANSWER"] = number(S3_ANSWER)
    tables = {
        "prices": [(price.what, number(price.dollars), price.source) for price in PRICES.values()],
        "walls": [(number(trials), what, moves) for trials, what, moves in walls(found)],
    }
    rows = {name: "\n".join(f"| {' | '.join(row)} |" for row in table) for name, table in tables.items()}
    return template.format(**constants, **rows, **{name: _shown(value) for name, value in found.items()})


def _shown(value: float) -> str:
    """A count, or a policy's whole days, without decimals."""
    return f"{value:,}" if isinstance(value, int) else number(value)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ten_thousand", description="Work docs/scale.md out from the results."
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=CHECKOUT / ".bench" / "results",
        help="where the parts' results are kept",
    )
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    given = parser.parse_args(arguments)
    try:
        given.out.write_text(page(figures(Measured(given.results))))
    except (Missing, Contradicted) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"written: {given.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
