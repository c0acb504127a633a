"""What is in a shared page, read as its script reads it; and stores to share from."""

import base64
import gzip
import json
import random
import re
import struct
from typing import Any, NamedTuple

import halving
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from server.sharing.page import build_page
from server.sharing.target import Target

_DATA = re.compile(rb'<script type="application/vnd\.halving\.shared" id="data">([^<]*)</script>')


class SharedPage(NamedTuple):
    """A page's own text, and the facts in it."""

    html: str
    facts: dict[str, Any]

    @property
    def runs(self) -> list[str]:
        return [run["run"] for run in self.facts["runs"]]


def parts_of(html: bytes) -> list[bytes]:
    """The parts of a page's data, the facts first."""
    match = _DATA.search(html)
    assert match is not None
    data = gzip.decompress(base64.b64decode(match[1]))
    parts = []
    while data:
        (length,) = struct.unpack_from("<I", data)
        parts.append(data[4 : 4 + length])
        data = data[4 + length :]
    return parts


def read_page(html: bytes) -> SharedPage:
    return SharedPage(html.decode(), json.loads(parts_of(html)[0]))


def page_of(backend: Backend, target: Target) -> SharedPage:
    return read_page(build_page(backend.store, backend.catalog, target))


def view_of(query: str, **fields: Any) -> Target:
    return Target(kind="view", name=query, **fields)


def fill(
    backend: Backend, count: int = 4, *, project: str = "demo", steps: int = 30, noise: float = 0
) -> None:
    """Runs r0, r1 and so on, whose losses lie above each other, in the index."""
    source = random.Random(0)
    for number in range(count):
        params = {"lr": 0.1 * (number + 1), "optimizer": {"name": "adam"}, "same": 1}
        with halving.init(
            project, params, backend.store.root, id=f"r{number}", tags={"team": "vision"}, system_metrics=None
        ) as run:
            for step in range(steps):
                loss = number + 1 / (step + 1) + noise * source.random()
                run.log({"loss": loss, "val/accuracy": step / steps}, step=step)
    Refresher(backend.store, backend.catalog).refresh()
