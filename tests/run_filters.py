"""Runs, filters and which runs each chooses: what everything that answers a filter is held to."""

import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import halving
from halving import Store

NOW = datetime(2024, 11, 22, 12, tzinfo=UTC)
"""What ``7d ago`` counts from; the runs are of these days."""


class _Run(NamedTuple):
    """A run to write; ``curves`` has by metric a value for each step, or pairs of steps and values."""

    run: str
    params: dict[str, Any]
    curves: dict[str, list[float] | dict[int, float]]
    started: str
    ended: str | None = None
    project: str = "digits"
    status: str = "finished"
    tags: dict[str, str] = {}
    parent: dict[str, Any] = {}
    seed: int | None = None
    epoch: int | None = None
    commit: str | None = None


_BACKWARDS: dict[int, float] = {5: 0.1, 3: 0.9}
_LONG = "x" * 599
_TRIAL = {"sweep": "digits-7f3a", "dataset": "digits", "snapshot": "sha256:aa"}
_RUNS = (
    _Run(
        "a",
        {
            "lr": 1e-4,
            "optimizer": {"name": "adam", "betas": [0.9, 0.99]},
            "augment": True,
            "depth": 3,
            "my lr": 1,
            "note": "50%",
            "nul": "a\0b",
            "id": 2**53,
        },
        {"loss": [1.0, 0.5, 0.6], "val/acc": [0.1, 0.9]},
        "2024-11-01T00:00:00.000+00:00",
        "2024-11-01T01:00:00.000+00:00",
        tags={"team": "vision", "fold": "3"},
        parent={**_TRIAL, "trial": 7},
        seed=5,
        epoch=3,
        commit="1234567890abcdef1234567890abcdef12345678",
    ),
    _Run(
        "b",
        {
            "lr": 1e-3,
            "optimizer": {"name": "Adam"},
            "augment": False,
            "depth": "3",
            "note": "it's",
            "id": 2**53 + 1,
        },
        {"loss": [1.0, 0.4], "val/acc": [math.nan], "back": _BACKWARDS},
        "2024-11-10T00:00:00.000+00:00",
        "2024-11-10T00:00:30.000+00:00",
        status="failed",
        tags={"team": "nlp x", "fold": "10"},
        parent={**_TRIAL, "trial": 10},
        seed=2**53 + 1,
        epoch=1,
    ),
    _Run(
        "c",
        {
            "lr": math.inf,
            "optimizer": {"name": "sgd"},
            "augment": 1,
            "depth": True,
            "note": "5000",
            "id": 12345678901234567890,
        },
        {"loss": [0.3, math.nan], "up": [math.inf]},
        "2024-11-15T12:00:00.000+00:00",
        "2024-11-15T12:00:10.000+00:00",
        tags={"team": "Vision"},
    ),
    _Run(
        "d",
        {
            "lr": "auto",
            "optimizer": None,
            "depth": 2.5,
            "note": "a\nb",
            "long": f"{_LONG}ab",
            "id": -(2**53) - 1,
        },
        {},
        "2024-11-20T12:00:00.000+00:00",
        "2024-11-22T11:00:00.000+00:00",
        project="text",
        epoch=0,
    ),
    _Run(  # killed: what its points are no record says
        "e",
        {"lr": math.nan, "optimizer": "adam", "note": "ÄTNA", "id": 10**400},
        {"loss": [0.9, 0.2, 0.7], "back": _BACKWARDS},
        "2024-11-22T09:00:00.000+00:00",
        project="text",
        status="unfinished",
    ),
)
ALL = ["e", "d", "c", "b", "a"]
"""Newest first."""

CASES: list[tuple[str, list[str]]] = [
    ("", ALL),
    # Texts, numbers, and what a run lacks.
    ("status = finished", ["d", "c", "a"]),
    ("status != finished", ["e", "b"]),
    ("status = Finished", []),
    ("status in (failed, 'unfinished')", ["e", "b"]),
    ("status not in (failed, unfinished)", ["d", "c", "a"]),
    ("project = digits and run > a", ["c", "b"]),
    ("run between b and d", ["d", "c", "b"]),
    ("run not between b and d", ["e", "a"]),
    ("sweep = digits-7f3a", ["b", "a"]),
    ("sweep != x", ["b", "a"]),
    ("not sweep = x", ["b", "a"]),
    ("sweep is null", ["e", "d", "c"]),
    ("sweep is not null", ["b", "a"]),
    ("not sweep is null", ["b", "a"]),
    ("not sweep is not null", ["e", "d", "c"]),
    ("trial > 7", ["b"]),
    ("trial = 7 or trial = 10", ["b", "a"]),
    ("dataset = digits and snapshot like 'sha256:%'", ["b", "a"]),
    ("commit like '1234567%'", ["a"]),
    ("seed >= 5", ["b", "a"]),
    ("seed = 5.5", []),
    (f"seed = {2**53 + 1}", ["b"]),
    (f"seed in (5, {2**53})", ["a"]),
    (f"seed > {2**53}", ["b"]),
    (f"seed >= {2**53 + 2}", []),
    (f"seed < {2**53 + 2}", ["b", "a"]),
    (f"seed != {2**53}", ["b", "a"]),
    (f"seed between {2**53 + 1} and {2**70}", ["b"]),
    (f"seed > -{2**70}", ["b", "a"]),
    (f"seed = {2**70}", []),
    ("seed < 5.5", ["a"]),
    ("seed > 4.5", ["b", "a"]),
    ("seed <= 4.5", []),
    ("seed != 5.5", ["b", "a"]),
    ("seed < inf", ["b", "a"]),
    ("seed > inf", []),
    ("epoch < 1", ["d"]),
    ("epoch is null", ["e", "c"]),
    ("attempt = 1", ALL),
    ("seconds between 10 and 60", ["e", "c", "b"]),
    # Times.
    ("started > 2024-11-10", ["e", "d", "c"]),
    ("started >= 2024-11-10", ["e", "d", "c", "b"]),
    ("started < 2024-11-10T00:00:00.001", ["b", "a"]),
    ("started = '2024-11-10 01:00+01:00'", ["b"]),
    ("started between 2024-11-01 and 2024-11-15", ["b", "a"]),
    ("started > 7d ago", ["e", "d"]),
    ("started >= 7d ago", ["e", "d", "c"]),
    ("started > 3h ago", []),
    ("started >= 180m ago", ["e"]),
    ("started not between 2w ago and 1w ago", ["e", "d", "a"]),
    ("ended is null", ["e"]),
    ("ended > 2h ago", ["d"]),
    ("not ended > 2h ago", ["c", "b", "a"]),
    # Params: a value of another type is unknown, so its negation is, too.
    ("params.lr = 1e-4", ["a"]),
    ("params.lr between 1e-4 and 1e-3", ["b", "a"]),
    ("params.lr < 1", ["b", "a"]),
    ("not params.lr < 1", ["e", "c"]),
    ("params.lr = auto", ["d"]),
    ("params.lr != auto", []),
    ("params.lr = inf", ["c"]),
    ("params.lr > 1e300", ["c"]),
    ("params.lr = nan", ["e"]),
    ("params.lr != nan", ["c", "b", "a"]),
    ("params.lr != 1e-4", ["e", "c", "b"]),
    ("params.lr in (nan, 1e-4, auto)", ["e", "d", "a"]),
    ("params.lr not in (1e-4)", ["e", "c", "b"]),
    ("params.lr not in (1e-4, x)", ["e", "d", "c", "b"]),
    ("params.augment = true", ["a"]),
    ("params.augment != true", ["b"]),
    ("params.augment in (true, false)", ["b", "a"]),
    ("params.augment = 1", ["c"]),
    ("params.augment = 'true'", []),
    ("params.augment >= 0", ["c"]),
    ("params.depth = 3", ["a"]),
    ("params.depth = '3'", ["b"]),
    ("params.depth in (3, '3', true)", ["c", "b", "a"]),
    ("params.depth > 0", ["d", "a"]),
    ("params.depth > ''", ["b"]),
    ("params.optimizer/name = adam", ["a"]),
    ("params.optimizer/name like adam", ["b", "a"]),
    ("params.optimizer/name is null", ["e", "d"]),
    ("params.optimizer is null", ["d", "c", "b", "a"]),
    ("params.optimizer = adam", ["e"]),
    ("params.optimizer/betas is not null", ["a"]),
    ("params.optimizer/betas like '[0.9,%'", ["a"]),
    ('params."my lr" = 1', ["a"]),
    ('params."optimizer/name" = sgd', ["c"]),
    # Whole numbers that no float tells from their neighbours.
    (f"params.id = {2**53}", ["a"]),
    (f"params.id = {2**53}.0", ["a"]),
    (f"params.id = {2**53 + 1}", ["b"]),
    (f"params.id = {2**53 + 2}", []),
    (f"params.id != {2**53 + 1}", ["e", "d", "c", "a"]),
    (f"params.id < {2**53 + 1}", ["d", "a"]),
    (f"params.id <= {2**53 + 1}", ["d", "b", "a"]),
    (f"params.id > {2**53}", ["e", "c", "b"]),
    (f"params.id >= {2**53 + 1}", ["e", "c", "b"]),
    (f"not params.id > {2**53}", ["d", "a"]),
    (f"params.id between {2**53 + 1} and 12345678901234567890", ["c", "b"]),
    (f"params.id in ({2**53}, 12345678901234567890)", ["c", "a"]),
    (f"params.id not in ({2**53}, 12345678901234567890)", ["e", "d", "b"]),
    ("params.id = 12345678901234567891", []),
    ("params.id = '12345678901234567890'", []),
    ("params.id > 12345678901234567889", ["e", "c"]),
    ("params.id < 12345678901234567891", ["d", "c", "b", "a"]),
    (f"params.id < -{2**53}", ["d"]),
    (f"params.id <= -{2**53 + 2}", []),
    (f"params.id = -{2**53 + 1}", ["d"]),
    ("params.id > 1e300", ["e"]),
    ("params.id = inf", []),
    ("params.id < inf", ["e", "d", "c", "b", "a"]),
    (f"params.id = 1{'0' * 400}", ["e"]),
    (f"params.id > 9{'9' * 399}", ["e"]),
    (f"params.id > 1{'0' * 400}", []),
    ("params.lr < 1" + "0" * 400, ["b", "a"]),
    ("order by params.id", ["d", "a", "b", "c", "e"]),
    ("order by params.id desc", ["e", "c", "b", "a", "d"]),
    ("params.nobody = 1", []),
    ("params.nobody != 1", []),
    ("params.nobody is null", ALL),
    ("not params.nobody is null", []),
    # Texts that are like a pattern.
    ("params.note like '50%'", ["c", "a"]),
    (r"params.note like '50\%'", ["a"]),
    ("params.note like '50_'", ["a"]),
    ("params.note like 'A_B'", ["d"]),
    ("params.note like '%'", ["e", "d", "c", "b", "a"]),
    # Over lines: a line break is a character.
    ("params.note = 'a\nb'", ["d"]),
    ("params.note like 'a%b'", ["d"]),
    ("params.note like '%\n%'", ["d"]),
    ("params.note like 'A\nB'", ["d"]),
    ("params.note like '%b'", ["d"]),
    ("params.note like 'a%'", ["d"]),
    ("params.note like 'a'", []),
    ("params.note like 'b'", []),
    ("params.note like 'a\n'", []),
    ("params.note like 'a__b'", []),
    ("params.note like 'a\nb\n'", []),
    ("params.note not like 'a%b'", ["e", "c", "b", "a"]),
    ("params.note not like '%\n%'", ["e", "c", "b", "a"]),
    ("params.note like 'it''s'", ["b"]),
    ('params.note = "it\'s"', ["b"]),
    ("params.note not like '5%'", ["e", "d", "b"]),
    ("params.note like '%tn%'", ["e"]),
    ("params.note like 'ätna'", []),  # only A to Z are as a to z
    ("params.note like 'Ätna'", ["e"]),
    ("params.note like 'IT''S'", ["b"]),
    ("params.note like '\u0130t''s'", []),
    ("params.note like '\u0131t''s'", []),
    ("params.note like 'it''\u017f'", []),
    ("params.note not like 'it''\u017f'", ["e", "d", "c", "b", "a"]),
    ("params.lr like '%'", ["d"]),
    ("not params.lr like '%'", []),
    # Of a long text filters know the beginning.
    (f"params.long = '{_LONG}a'", ["d"]),
    (f"params.long in ('{_LONG}', '{_LONG}a')", ["d"]),
    ("params.long like '%a'", ["d"]),
    ("params.long like '%b'", []),
    ("params.nul = ab", ["a"]),
    # Tags are text, whatever the literal looks like.
    ("tags.team = vision", ["a"]),
    ("tags.team like vision", ["c", "a"]),
    ("tags.team in (vision, 'nlp x')", ["b", "a"]),
    ("tags.team is null", ["e", "d"]),
    ("tags.team not in (vision)", ["c", "b"]),
    ("tags.fold = 3", ["a"]),
    ("tags.fold > 2", ["a"]),
    # Metrics: the last value, the smallest, the greatest.
    ("metrics.loss < 0.6", ["b"]),
    ("metrics.loss <= 0.6", ["b", "a"]),
    ("metrics.loss > 0.6", ["e"]),
    ("metrics.loss = nan", ["c"]),
    ("metrics.loss != nan", ["e", "b", "a"]),
    ("not metrics.loss < 0.6", ["e", "c", "a"]),
    ("metrics.loss is null", ["d"]),
    ("metrics.loss is not null", ["e", "c", "b", "a"]),
    ("metrics.up = inf", ["c"]),
    ("metrics.val/acc > 0.5", ["a"]),
    ("min(metrics.loss) < 0.4", ["e", "c"]),
    ("max(metrics.loss) >= 1", ["b", "a"]),
    ("min(metrics.val/acc) is null", ["e", "d", "c", "b"]),
    ("max(metrics.up) is null", ALL),
    # Where steps go backwards, what was logged last is the last value; of a run that was killed, the value at
    # the greatest step.
    ("metrics.back = 0.9", ["b"]),
    ("metrics.back = 0.1", ["e"]),
    ("min(metrics.back) = 0.1 and max(metrics.back) = 0.9", ["e", "b"]),
    ("order by metrics.back", ["e", "b", "d", "c", "a"]),
    ("min(metrics.loss) < 0.3 and max(metrics.loss) < 1", ["e"]),
    # And, or, not, with what is unknown.
    ("status = finished and project = digits", ["c", "a"]),
    ("status = failed or project = text and status = finished", ["d", "b"]),
    ("(status = failed or project = text) and status = finished", ["d"]),
    ("not (status = failed or project = text)", ["c", "a"]),
    ("not status = failed and project = digits", ["c", "a"]),
    ("NOT not status = failed", ["b"]),
    ("trial = 7 or status = unfinished", ["e", "a"]),
    ("not (trial = 7 or status = unfinished)", ["b"]),
    ("not (trial = 7 and status = finished)", ["e", "b"]),
    ("sweep is null and not (trial = 7 and status = finished)", ["e"]),
    # Orders: what is missing, or NaN, comes last in either direction, and equals are newest first.
    ("order by run", ["a", "b", "c", "d", "e"]),
    ("order by run desc", ["e", "d", "c", "b", "a"]),
    ("order by started asc", ["a", "b", "c", "d", "e"]),
    ("order by ended desc", ["d", "c", "b", "a", "e"]),
    ("order by status, started", ["b", "a", "c", "d", "e"]),
    ("order by status", ["b", "d", "c", "a", "e"]),
    ("order by status desc", ["e", "d", "c", "a", "b"]),
    ("order by seed", ["a", "b", "e", "d", "c"]),
    ("order by seed desc", ["b", "a", "e", "d", "c"]),
    ("order by metrics.loss", ["b", "a", "e", "d", "c"]),
    ("order by metrics.loss desc", ["e", "a", "b", "d", "c"]),
    ("order by min(metrics.loss)", ["e", "c", "b", "a", "d"]),
    ("order by max(metrics.loss) desc, min(metrics.loss) desc", ["a", "b", "e", "c", "d"]),
    ("order by params.lr", ["a", "b", "c", "d", "e"]),
    ("order by params.lr desc", ["d", "c", "b", "a", "e"]),
    ("order by params.depth", ["d", "a", "b", "c", "e"]),
    ("order by params.augment", ["c", "b", "a", "e", "d"]),
    ("order by params.augment desc", ["a", "b", "c", "e", "d"]),
    ("order by tags.team", ["c", "b", "a", "e", "d"]),
    ("order by params.optimizer/name", ["b", "a", "c", "e", "d"]),
    ("status = finished order by params.lr limit 2", ["a", "c"]),
    ("limit 2", ["e", "d"]),
    ("order by run limit 999999999", ["a", "b", "c", "d", "e"]),
]


def write_runs(root: Path) -> Store:
    """The runs, in a store of their own."""
    for run in _RUNS:
        _write(root, run)
    return Store(root)


def _write(root: Path, run: _Run) -> None:
    opened = halving.init(
        run.project, run.params, root, id=run.run, seed=run.seed, tags=run.tags, system_metrics=None
    )
    for key, values in run.curves.items():
        for step, value in (values if isinstance(values, dict) else dict(enumerate(values))).items():
            opened.log({key: value}, step=step)
    opened.finish(run.status if run.ended else "finished")
    folder = root / "runs" / f"project={run.project}" / run.run
    record = json.loads((folder / "record.json").read_text())
    record["started"] = run.started
    record["parent"] |= run.parent
    record["provenance"]["git"] = {"commit": run.commit}
    (folder / "record.json").write_text(json.dumps(record))
    if run.ended:
        end = json.loads((folder / "end-0001.json").read_text())
        (folder / "end-0001.json").write_text(json.dumps({**end, "time": run.ended, "epoch": run.epoch}))
        return
    (folder / "end-0001.json").unlink()
    long_ago = datetime.fromisoformat(run.started).timestamp() + 60
    for path in root.glob(f"metrics/project={run.project}/run={run.run}/live/*.parquet"):
        os.utime(path, (long_ago, long_ago))
