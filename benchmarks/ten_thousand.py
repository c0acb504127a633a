"""``python -m benchmarks.ten_thousand``: write docs/scale.md from the benchmarks' results."""

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
    """The parts' tables as they were kept."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._parts: dict[str, Part] = {}

    def cell(self, part: str, row: str, column: str, table: str = "", *, also: str = "") -> float:
        """The number of a cell (of several rounds the median).

        ``row`` begins the first cell, ``also`` another one of that row.

        Raises:
            Missing: there is none.
        """
        for each in self._part(part).tables:
            if table and each.title != table:
                continue
            for cells in each.rows:
                if column in each.header and cells[0].startswith(row) and (not also or also in cells[1:]):
                    return float(cells[each.header.index(column)].split()[0].replace(",", ""))
        raise Missing(f"no {column!r} of {row!r} in what {part!r} measured: run python -m benchmarks {part}")

    def _part(self, part: str) -> Part:
        if part not in self._parts:
            path = self._results / f"{part}.json"
            if not path.exists():
                raise Missing(f"{path} is missing: run python -m benchmarks {part} --out docs/benchmarks.md")
            self._parts[part] = load(path)
        return self._parts[part]


def figures(measured: Measured) -> dict[str, float]:
    """What ten thousand trials require, each figure from a measurement of its part."""
    from halving.trial import mailbox
    from halving.trial_process import pod
    from resources.execution.watches import OBJECT_STORE_LOOK_SECONDS
    from resources.scheduling.leases import HEARTBEAT_SECONDS

    cell = measured.cell
    production = _production()
    values: dict[str, float] = {"look": OBJECT_STORE_LOOK_SECONDS, "heartbeat": HEARTBEAT_SECONDS}
    attempt = RUNG / (1 - GOES_ON)  # seconds on average: until a rung where the trial is paused
    values["attempt_minutes"] = attempt / 60
    values["attempts"] = starts = TRIALS / attempt  # begun a second
    values["decisions"] = TRIALS / RUNG
    values["calls"] = values["decisions"] + starts
    values["heartbeats"] = TRIALS / HEARTBEAT_SECONDS

    values["points"] = points = TRIALS * SERIES * LOGGED
    values["log_us"] = 10 * cell("log", "tight", "p50, µs", also="busy")
    values["log_share"] = 100 * values["log_us"] * LOGGED / 1e6
    values["drained"] = 1e6 * cell("durable", "", "M points/s")
    values["drain"] = 100 * SERIES * LOGGED / values["drained"]
    values["segments"] = segments_of(attempt)
    values["puts"] = starts * values["segments"]
    values["puts_fixed"] = TRIALS / 5
    values["puts_long"] = TRIALS / 60
    mixed = {
        name: cell("objects", "mixed", name, "Segments") for name in ("15 s, B/point", "compacted, B/point")
    }
    values["segment_bytes"] = mixed["15 s, B/point"]
    values["compacted_bytes"] = mixed["compacted, B/point"]
    values["worst_bytes"] = cell("objects", "losses", "compacted, B/point", "Segments")
    values["mb"] = points * values["segment_bytes"] / 1e6
    values["tb_month"] = points * values["compacted_bytes"] * MONTH / 1e12
    values["points_kept_tb"] = points * values["compacted_bytes"] * KEPT_DAYS * 86_400 / 1e12

    def requests(what: str, column: str) -> float:
        return cell("objects", what, column, "Requests")

    first_look = requests(f"a first look at {SEGMENTS_COMPACTED} segments", "reads") / SEGMENTS_COMPACTED
    values["upload_interval"] = production["compute_logs"]["config"]["upload_interval"]
    for kind in ("writes", "reads"):
        each = {
            "opening": requests("opening a run", kind),
            "segments": values["segments"] * requests("a segment", kind),
            "checkpoints": 2 * requests("a checkpoint", kind),
            # A look lists; and each segment is read once, by the first look that finds it.
            "looks": attempt / values["look"] * requests("the next look", kind),
            "logs": 0.0,
            "ending": requests("ending a run", kind),
            "compaction": _compaction_requests(cell, kind),
        }
        if kind == "reads":
            each["looks"] += values["segments"] * first_look
            each["compaction"] *= values["segments"] / SEGMENTS
        else:
            each["logs"] = attempt / values["upload_interval"] * LOG_STREAMS
        values |= {f"{name}_{kind}": value for name, value in each.items()}
        values[f"{kind}_attempt"] = sum(each.values())
        values[f"{kind}_second"] = starts * values[f"{kind}_attempt"]
    values["segment_second"] = values["segments_writes"] * starts
    values["asked_back_look"] = pod._ASKED_BACK_LOOK_SECONDS
    values["mail_second"] = TRIALS / mailbox._MAX_SECONDS + TRIALS / values["asked_back_look"]
    values["compaction_rate"] = cell("compaction", "", "attempts/s", "Both")
    values["compaction_hour"] = 3600 * values["compaction_rate"]
    values["compaction_workers"] = math.ceil(WORKERS * starts / values["compaction_rate"])
    values["compaction_cores"] = points / (
        1e6 * cell("queries", "100 runs x 10 metrics x 100,000", "M points/s", "Compaction of these stores")
    )
    values |= (
        _catalog(cell, values)
        | _dagster(cell, starts)
        | _kubernetes(cell, starts, production)
        | _dollars_of_s3(values)
    )
    values["catalog_gb_month"] = starts * MONTH * values["catalog_bytes"] / 1e9
    values["postgres_cores_rented"] = 2 ** math.ceil(math.log2(max(2.0, 2 * values["postgres_cores"])))
    values["dollars_postgres"] = values["postgres_cores_rented"] * _price("postgres_core") * HOURS + values[
        "catalog_gb_month"
    ] * _price("disk_gb")
    values["dollars_control"] = 16 * _price("core") * HOURS
    values["dollars"] = sum(value for name, value in values.items() if name.startswith("dollars_"))
    # Beside the sum, for who chooses them.
    values["more_events"] = values["event_gb_month"] * _price("disk_gb")
    values["more_mail"] = values["mail_second"] * MONTH / 1e6 * _price("s3_reads")
    values["gpus"] = TRIALS * _price("gpu") * HOURS
    values["share_of_gpus"] = 100 * values["dollars"] / values["gpus"]
    _check_sentences(values)
    return values


def _compaction_requests(cell: Callable[..., float], kind: str) -> float:
    """Requests of an attempt until it is compacted and its segments are deleted."""
    return sum(
        cell("compaction", phase, kind, f"{ATTEMPTS} attempts, {WORKERS} workers")
        for phase in ("compacted", "cleaned")
    )


def _catalog(cell: Callable[..., float], figures: dict[str, float]) -> dict[str, float]:
    from benchmarks.catalog import LOADS, WRITES

    here = cell("catalog", "Halving: a heartbeat", "writes/s of all", "Saturated")
    heartbeat = cell("catalog", "Halving: a heartbeat", "p50, ms", "Saturated")
    values = {
        "promised_writes": WRITES,
        "heartbeats_here": here,
        "heartbeats_core": here / 2,
        "bare_here": cell("catalog", "bare psycopg", "writes/s of all", "Saturated"),
        "heartbeat_p50": heartbeat,
        "busy": figures["heartbeats"] * heartbeat / 1000,
        "catalog_bytes": cell("catalog", "", "bytes a trial, with indexes", "What is kept"),
        "catalog_rows": cell("catalog", "", "rows a trial", "What is kept"),
        "postgres_cores": 2 * figures["heartbeats"] / here,
    }
    values["million_gb"] = values["catalog_bytes"] / 1000
    values |= _shares(cell)
    for name, load_of in zip(("promised", "full"), LOADS[1:], strict=True):
        for word, column in (
            ("done", "heartbeats/s done"),
            ("p50", "next trial p50, ms"),
            ("p99", "next trial p99, ms"),
        ):
            values[f"{name}_{word}"] = cell(
                "catalog", load_of.what, column, "Next trial and decisions, with heartbeats beside them"
            )
    return values


def _shares(cell: Callable[..., float]) -> dict[str, float]:
    """How trials are handed out where projects share the machines."""
    from benchmarks import catalog_shares as shares

    values: dict[str, float] = {
        "shares_sweeps": shares.SWEEPS,
        "shares_projects": shares.PROJECTS,
        "shares_waiting": shares.WAITING,
    }
    for name, fleet in (("alone", shares.ALONE), ("shared", shares.ROOM), ("scarce", shares.FULL)):
        values[f"{name}_next"] = cell("shares", fleet, "next trials/s", shares.SATURATED)
        for word, column in (("p50", "next trial p50, ms"), ("p99", "next trial p99, ms")):
            values[f"{name}_{word}"] = cell("shares", fleet, column, shares.PACED)
    values["shared_part"] = 100 * values["shared_next"] / values["alone_next"]
    return values


def _dagster(cell: Callable[..., float], starts: float) -> dict[str, float]:
    values = {"requested": cell("dagster", "requested", "runs/s", "Runs")}
    for threads in (1, 4, 16):
        values[f"launched_{threads}"] = cell("dagster", "launched", "runs/s", "Runs", also=str(threads))
    values["launched_own"] = cell("dagster", "Dagster's own storage", "runs/s", "Runs")
    values["launched_full"] = cell("dagster", "launched", "runs/s", "Runs", also="10,000")
    values["rows_run"] = cell("dagster", "", "rows in the event log", "Real runs, medians")
    values["kb_run"] = cell("dagster", "", "bytes of events", "Real runs, medians") / 1000
    values["run_overhead"] = cell("dagster", "", "from start to end, s", "Real runs, medians")
    values["event_gb_month"] = starts * values["kb_run"] * MONTH / 1e6
    values["partition_hours"] = PARTITIONS / starts / 3600
    values["jobs"] = math.ceil(TRIALS / SLOTS)
    for sensor in ("start_trials", "retry_crashed_trials", "stop_diverged_trials"):
        for tick in ("first", "next"):
            values[f"{sensor}_{tick}"] = cell(
                "dagster", f"`{sensor}`", f"{tick} tick, s", "Ticks", also="100,000"
            )
    return values


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


def _dollars_of_s3(figures: dict[str, float]) -> dict[str, float]:
    days, best_of_sweep = _checkpoints_kept()
    running = TRIALS * 2 * CHECKPOINT_GB / 1000
    # At most: when no trial is paused and promoted later. What is deleted is deleted some days after the end
    # of its sweep.
    ended_gb = figures["attempts"] * 86_400 * CHECKPOINT_GB  # a day
    figures["checkpoint_days"] = days
    figures["checkpoint_top"] = best_of_sweep
    ended = ended_gb * days / 1000
    best = ended_gb * HOURS / 24 * best_of_sweep / SWEEP / 1000
    return {
        "checkpoint_tb": running,
        "ended_tb": ended,
        "best_tb_month": best,
        "undeleted_tb_month": ended_gb * HOURS / 24 / 1000,
        "dollars_writes": figures["writes_second"] * MONTH / 1e6 * _price("s3_writes"),
        "dollars_reads": figures["reads_second"] * MONTH / 1e6 * _price("s3_reads"),
        "dollars_points": 1000 * figures["points_kept_tb"] * _price("s3_gb"),
        "dollars_checkpoints": 1000 * running * _price("s3_gb"),
        "dollars_ended": 1000 * ended * _price("s3_gb"),
        "dollars_best": 1000 * best * _price("s3_gb"),
    }


def _checkpoints_kept() -> tuple[float, float]:
    """The days for which the shipped policy keeps an ended trial's checkpoints, and its ``top_k``.

    Of a sweep's best trials, ``top_k`` are kept for ever.
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
    days = kept.days
    if days == int(days):
        days = int(days)
    return days, kept.top_k


def _price(name: str) -> float:
    return PRICES[name].dollars


def _production() -> dict[str, Any]:
    """Dagster's settings in production."""
    import yaml

    settings: dict[str, Any] = yaml.safe_load(
        (CHECKOUT / "deploy" / "kubernetes" / "base" / "dagster.yaml").read_text()
    )
    return settings


def _check_sentences(figures: dict[str, float]) -> None:
    """Check the page's sentences against the figures.

    Raises:
        Contradicted: one of them is not so any more.
    """
    ticks = [value for name, value in figures.items() if name.endswith("_trials_next")]
    for sentence, holds in (
        ("a process writes points faster than its trial logs them", figures["drain"] < 100),
        ("a warm sensor's tick stays below its 60 s", max(ticks) < 60),
        (
            "decisions and next trials are small beside heartbeats",
            figures["calls"] < 0.1 * figures["heartbeats"],
        ),
        (
            "trials are handed out where projects share the machines as fast as they begin",
            figures["shared_next"] >= figures["attempts"],
        ),
        (
            "the compaction's workers keep up with 10,000 ended attempts an hour",
            figures["compaction_hour"] >= PROMISED,
        ),
        ("the objects of all trials stay below etcd's 2 GB", figures["etcd_mb"] < 2_000),
    ):
        if not holds:
            raise Contradicted(
                f"docs/scale.md would say that {sentence}, which was measured otherwise: change "
                "benchmarks/ten_thousand.md"
            )


def walls(figures: dict[str, float]) -> list[tuple[float, str, str]]:
    """The limits, lowest first: the concurrent trials that reach it, what it is, and what raises it."""
    attempt = TRIALS / figures["attempts"]
    ends = [
        (
            figures["compaction_rate"] * attempt,
            f"compaction by {WORKERS} workers",
            "more workers of `compact_metrics`, or several runs of it",
        ),
        (
            PARTITIONS / 86_400 * attempt,
            "with sensors: 100,000 partitions within a day",
            "the one job; deleting old sweeps' partitions",
        ),
        (figures["launched_full"] * attempt, "with sensors: launching", "the one job; longer rungs"),
        (
            figures["shared_next"] * attempt,
            "where projects share the machines: trials handed out one after another",
            "longer rungs; a faster core and disk of Postgres",
        ),
        (
            figures["heartbeats_here"] * figures["heartbeat"],
            "heartbeats, Postgres and its clients on 2 cores",
            "cores of Postgres",
        ),
        (
            figures["jobs_here"] * attempt,
            "with sensors: Jobs created a second",
            "the one job; longer rungs; a larger control plane",
        ),
        (
            TRIALS * 60 / figures["start_trials_next"],
            "with sensors: a tick of 60 s",
            "more sweeps ended; the one job",
        ),
        (
            TRIALS * S3_PREFIX / figures["writes_second"],
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
    """Segments that an attempt of this age has written in an object store.

    It writes one every 5 s, later every twentieth of its age, and at last every 60 s.
    """
    rising = min(max(seconds, 100.0), 1_200.0)
    return min(seconds, 100.0) / 5 + 20 * math.log(rising / 100) + max(0.0, seconds - 1_200) / 60


def page(figures: dict[str, float]) -> str:
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
        "walls": [(number(trials), what, moves) for trials, what, moves in walls(figures)],
    }
    rows = {name: "\n".join(f"| {' | '.join(row)} |" for row in table) for name, table in tables.items()}
    return template.format(**constants, **rows, **{name: _as_text(value) for name, value in figures.items()})


def _as_text(value: float) -> str:
    """A figure as text; a count, or a policy's whole days, without decimals."""
    if isinstance(value, int):
        return f"{value:,}"
    return number(value)


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
    options = parser.parse_args(arguments)
    try:
        options.out.write_text(page(figures(Measured(options.results))))
    except (Missing, Contradicted) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"written: {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
