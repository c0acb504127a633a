"""Builds the page: what a target shows, the page's script and style, all in one HTML file.

Its policy allows that one script and that one style by their hashes, and nothing else, from nowhere. What
runs have logged is compressed data in it, which nothing reads but the script, as text.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from typing import Any, NamedTuple

from halving.errors import InvalidInput
from halving.query.json_values import jsonable
from halving.store.store import Store
from resources.catalog import Catalog
from server.sharing.bundle import STATIC, bundle
from server.sharing.contents import Contents, contents_of
from server.sharing.curves import MIN_ROWS, pack_curves, rows_within
from server.sharing.packing import frame
from server.sharing.target import Target

MAX_BYTES = 3_000_000
"""Of a page."""
_ENTRY = "shared/page.js"
_STYLES = ("style.css", "vendor/uplot.css", "compare/compare.css", "shared/shared.css")
_DESCRIBED_BYTES = 60
"""What the description of a curve takes, compressed and as text."""
_DATA_TYPE = "application/vnd.halving.shared"
_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title} · Halving</title>
<style>{style}</style>
</head>
<body>
<div id="app"></div>
<noscript>This page draws its curves by its own script, which this browser does not run.</noscript>
<script type="{kind}" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


class BuiltPage(NamedTuple):
    """A page and what it holds.

    Attributes:
        runs, curves: how many there are on it.
        rows: of each curve, at most.
        other_metrics: how many metrics its runs have besides.
        left_out: what is not on it, in sentences.
    """

    html: bytes
    title: str
    runs: int
    curves: int
    rows: int
    other_metrics: int
    left_out: list[str]


def build_page(store: Store, catalog: Catalog, target: Target) -> bytes:
    """The page of a target, as one HTML file of at most :data:`MAX_BYTES`.

    Raises:
        InvalidInput: it cannot be that small, or the target is not accepted.
        NotFound: what it shows is not there, or is of none of the target's projects.
        StoreError: the store cannot be read.
    """
    return build(store, catalog, target).html


def build(store: Store, catalog: Catalog, target: Target) -> BuiltPage:
    """The page of a target, and what it holds; :func:`build_page` has the errors."""
    contents = contents_of(store, catalog, target)
    runs = [row["id"] for row in contents.rows]
    without_curves = len(_html(contents.title, _as_data(_facts(contents, target, {}), [])))
    described_bytes = _DESCRIBED_BYTES * len(runs) * len(contents.metrics)
    rows = rows_within(store, runs, contents.metrics, MAX_BYTES - without_curves - described_bytes)
    while rows:
        packed = pack_curves(store, runs, contents.metrics, rows)
        described = {"curves": packed.described, "places": packed.places, "rows": rows}
        html = _html(contents.title, _as_data(_facts(contents, target, described), packed.encode()))
        if len(html) <= MAX_BYTES:
            return BuiltPage(
                html,
                contents.title,
                runs=len(runs),
                curves=len(packed.described),
                rows=rows,
                other_metrics=contents.other_metrics,
                left_out=contents.left_out,
            )
        if rows == MIN_ROWS:
            break
        rows = max(MIN_ROWS, int(0.9 * rows * MAX_BYTES / len(html)))
    raise InvalidInput(
        f"{len(runs)} runs with {len(contents.metrics)} metrics do not fit into a page of {MAX_BYTES:,} "
        f"bytes, even with {MIN_ROWS} rows of each curve: share fewer runs or metrics"
    )


def content_policy() -> str:
    """The Content-Security-Policy of every page, for a server that shows one under an address of its own."""
    return _frame_parts().policy


def _facts(contents: Contents, target: Target, curves: dict[str, Any]) -> bytes:
    facts = {
        "title": contents.title,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "by": target.made_by,
        "kind": target.kind,
        "filter": contents.filter,
        "total": contents.total,
        "leftOut": contents.left_out,
        "drawing": contents.drawing,
        "columns": contents.columns,
        "group": contents.group,
        "runs": contents.rows,
        "metrics": contents.metrics,
        "params": contents.params,
        "notes": contents.notes,
        "record": contents.record,
        "sweep": contents.sweep,
        **curves,
    }
    return json.dumps(jsonable(facts), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _as_data(facts: bytes, arrays: Sequence[bytes]) -> bytes:
    return base64.b64encode(gzip.compress(frame(facts, arrays), 9, mtime=0))


def _html(title: str, data: bytes) -> bytes:
    parts = _frame_parts()
    return _HTML.format(
        policy=parts.policy,
        title=escape(title),
        style=parts.style,
        kind=_DATA_TYPE,
        data=data.decode(),
        script=parts.script,
    ).encode()


class _FrameParts(NamedTuple):
    policy: str
    style: str
    script: str


@lru_cache(maxsize=1)
def _frame_parts() -> _FrameParts:
    style = "\n".join((STATIC / name).read_text() for name in _STYLES)
    script = bundle(_ENTRY)
    policy = (
        f"default-src 'none'; script-src {_hash_of(script)}; style-src {_hash_of(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _FrameParts(policy, style, script)


def _hash_of(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
