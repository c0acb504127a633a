"""The page's files: one HTML file for all paths, and its modules, answered from memory.

They are read when the server starts.

Each file has an address with the digest of all of them, ``/static/<digest>/app.js``: a browser keeps it for
good, asks for nothing again when it is reloaded, and after an upgrade never puts an old module beside a new
one. Where a proxy shows the page below a path, that is put before each address. The HTML is asked for each
time, and names for each path all modules that its page needs, so that none waits until another one was read.
"""

import gzip
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Self

from starlette.datastructures import Headers
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from server.answers import chosen_type, is_known
from server.errors import MEDIA_TYPE

STATIC = Path(__file__).parent / "static"

PATHS = {
    "/": ("compare/index.js", "charts/line-chart.js", "compare/first-curves.js"),
    "/runs/{project}/{run}": ("pages/run.js",),
    "/sweeps": ("pages/sweeps.js",),
    "/sweeps/{name}": ("pages/sweep.js",),
    "/models": ("pages/models.js",),
    "/models/{name}": ("pages/model.js",),
    "/datasets": ("pages/datasets.js",),
    "/datasets/{name}": ("pages/dataset.js",),
    "/journal": ("pages/journal.js",),
    "/alerts": ("pages/alerts.js",),
    "/login": ("pages/login.js",),
}
"""What the page's router (``static/app.js``) knows, each with its module and what else is always run there,
the earliest last; every other path is a file or nothing.
"""

_HTML = "index.html"
_SHELL = "app.js"
_PAGE = "text/html"
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".html": "text/html",
}
_KEPT = "public, max-age=31536000, immutable"
_REVALIDATED = "no-cache"  # kept, but asked for (304) each time
_FOR_GOOD = "/static/"
_MODULES = 'data-modules=""'  # in the HTML; early.js reads it
_BASE = 'data-base=""'  # so do early.js and lib/base.js
# `import{a}from"b"` and `import "b"`, of libraries and of our own; not `import("b")`, which is for later, nor
# JSDoc's types.
_IMPORT = re.compile(r"""\b(?:import\s*|(?:import|export)\b[^"'();=]*?\bfrom\s*)["']([^"']+)["']""")
_IMPORT_MAP = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)
_MAPPED = re.compile(r'"([^"]+)": "/([^"]+)"')
_ADDRESS = re.compile(r'"/([^"]+)"')


@dataclass(frozen=True)
class _Answer:
    """The answer for one file: headers, and the body plain and compressed."""

    tag: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    packed: bytes

    @classmethod
    def of(cls, body: bytes, kind: str, keep: str) -> Self:
        tag = f'W/"{sha256(body).hexdigest()[:16]}"'  # weak: the packed body has the same
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Cache-Control": keep,
            "ETag": tag,
            "Vary": "Accept-Encoding",
        }
        return cls(
            tag,
            [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            body,
            _pack(body),
        )

    async def send(self, scope: Scope, send: Send, status: int = 200) -> None:
        request = Headers(scope=scope)
        body = self.body
        headers = list(self.headers)
        if status == 200 and is_known(self.tag, request.get("if-none-match")):
            status = 304
            body = b""
        elif "gzip" in request.get("accept-encoding", ""):
            body = self.packed
            headers.append((b"content-encoding", b"gzip"))
        if status != 304:
            headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["method"] == "HEAD":
            body = b""
        await send({"type": "http.response.body", "body": body})


class PageFiles:
    """The page's files, read when the first server of the process starts.

    Args:
        static: their folder.
        base_path: what is put before the addresses that the page asks for; they are answered without it.
    """

    def __init__(self, static: Path = STATIC, base_path: str = "") -> None:
        files = {
            path.relative_to(static).as_posix(): path.read_bytes()
            for path in sorted(static.rglob("*"))
            if path.is_file()
        }
        source = files.pop(_HTML).decode()
        digest = sha256(
            b"".join(name.encode() + b"\0" + sha256(body).digest() for name, body in files.items())
        ).hexdigest()[:12]
        self._files = files
        self._named = {
            name: path
            for import_map in _IMPORT_MAP.findall(source)
            for name, path in _MAPPED.findall(import_map)
        }
        self._prefix = f"{_FOR_GOOD}{digest}/"
        self._address = f"{base_path}{self._prefix}"
        html = _ADDRESS.sub(
            lambda match: f'"{self._address}{match[1]}"' if match[1] in files else match[0], source
        )
        self.html = html.replace(_BASE, f'data-base="{base_path}"')
        """The HTML of every path but for the modules that it asks for."""

        kinds = {name: _TYPES.get(posixpath.splitext(name)[1], "text/plain") for name in files}
        self._kept = {name: _Answer.of(body, kinds[name], _KEPT) for name, body in files.items()}
        self._revalidated = {
            name: _Answer.of(body, kinds[name], _REVALIDATED) for name, body in files.items()
        }
        self._pages = [
            (compile_path(path)[0], _Answer.of(self._page(*modules).encode(), "text/html", _REVALIDATED))
            for path, modules in PATHS.items()
        ]
        self.shell = _Answer.of(self._page().encode(), "text/html", _REVALIDATED)
        """The page without what any address shows: it says that nothing is there."""

    def modules_of(self, *names: str) -> list[str]:
        """The modules and everything that they import at once, each before what it imports."""
        modules = dict.fromkeys(names)
        waiting = list(names)
        while waiting:
            imported = [name for name in self._imports(waiting.pop(0)) if name not in modules]
            modules.update(dict.fromkeys(imported))
            waiting += imported
        return list(modules)

    def answer(self, path: str) -> _Answer | None:
        """The answer for a path; None if it is not one of the page's."""
        if path.startswith(self._prefix):
            return self._kept.get(path.removeprefix(self._prefix))
        if path.startswith(_FOR_GOOD):  # of another version, while the server's replicas are upgraded
            return self._revalidated.get(path.removeprefix(_FOR_GOOD).partition("/")[2])
        return self._revalidated.get(path[1:]) or next(
            (answer for pattern, answer in self._pages if pattern.match(path)), None
        )

    def _imports(self, name: str) -> Iterator[str]:
        for target in _IMPORT.findall(self._files[name].decode()):
            path = self._named.get(target) or posixpath.normpath(
                posixpath.join(posixpath.dirname(name), target)
            )
            if path in self._files:
                yield path

    def _page(self, *names: str) -> str:
        modules = " ".join(self._address + name for name in self.modules_of(*reversed(names), _SHELL))
        return self.html.replace(_MODULES, f'data-modules="{modules}"')


class Pages:
    """ASGI middleware that answers requests for the page, and leaves all others to the application.

    A browser that asks for a page that does not exist gets the page, which says so.
    """

    def __init__(self, app: ASGIApp, files: PageFiles) -> None:
        self._app = app
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if (
            scope["type"] != "http"
            or scope["method"] not in ("GET", "HEAD")
            or path == "/api"
            or path.startswith("/api/")
        ):
            await self._app(scope, receive, send)
        elif answer := self._files.answer(path):
            await answer.send(scope, send)
        elif chosen_type(Headers(scope=scope).get("accept", ""), (MEDIA_TYPE, _PAGE)) == _PAGE:
            await self._files.shell.send(scope, send, 404)
        else:
            await self._app(scope, receive, send)


@lru_cache(maxsize=256)
def _pack(body: bytes) -> bytes:
    return gzip.compress(body, 9, mtime=0)
