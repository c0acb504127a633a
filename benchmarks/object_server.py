"""An S3 API in a thread of this process, as fast as Python allows, with a wait for each answer.

What is measured with it is its clients. It keeps everything in memory, checks no signature, and knows what
Arrow and boto3 ask of it here: GET with a range, HEAD, PUT, DELETE, listings of version 2, and deleting many
at once. A multipart upload is refused.
"""

import asyncio
import hashlib
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""For the environment of its clients; it checks none."""
_MAX_KEYS = 1_000
_REASONS = {
    100: "Continue",
    200: "OK",
    204: "No Content",
    206: "Partial Content",
    404: "Not Found",
    501: "Not Implemented",
}


class _Object(NamedTuple):
    content: bytes
    written: float
    etag: str


class ObjectServer:
    """The server and its objects.

    Attributes:
        objects: by bucket and key, ``bucket/key``.
        counts: requests so far by what S3 would charge them as: PUT, POST, LIST, GET, HEAD, DELETE.
        wait: seconds until a request is answered.
        endpoint: ``host:port``.
    """

    def __init__(self) -> None:
        self.objects: dict[str, _Object] = {}
        self._paths: list[str] = []  # sorted: a listing of a few of very many must not look at all of them
        self.counts: Counter[str] = Counter()
        self.wait = 0.0
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
        )
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._server.close()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.close()

    def root(self, name: str) -> str:
        """The address of a store in a bucket of its own."""
        return f"s3://{name}/experiments?endpoint_override={self.endpoint}&scheme=http&region=us-east-1"

    def put(self, path: str, content: bytes) -> None:
        """Put an object without a request."""
        if path not in self.objects:
            insort(self._paths, path)
        self.objects[path] = _Object(
            content, time.time(), hashlib.md5(content, usedforsecurity=False).hexdigest()
        )

    def delete(self, path: str) -> None:
        """Delete an object, if it is there, without a request."""
        if self.objects.pop(path, None):
            del self._paths[bisect_left(self._paths, path)]

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                method, target, _ = line.decode("latin-1").split()
                headers: dict[str, str] = {}
                while (field := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = field.decode("latin-1").partition(":")
                    headers[name.strip().lower()] = value.strip()
                if headers.get("expect") == "100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await _body(reader, headers)
                if self.wait:
                    await asyncio.sleep(self.wait)
                status, more, content = self._answer(method, target, headers, body)
                more = {"Content-Length": str(len(content)), "Date": formatdate(usegmt=True), **more}
                head = "".join(f"{name}: {value}\r\n" for name, value in more.items())
                writer.write(f"HTTP/1.1 {status} {_REASONS[status]}\r\n{head}\r\n".encode())
                if method != "HEAD":
                    writer.write(content)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(target)
        path = unquote(parts.path).lstrip("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        is_list = method == "GET" and "list-type" in query
        self.counts["LIST" if is_list else method] += 1
        if is_list:
            return 200, {"Content-Type": "application/xml"}, self._list(path.partition("/")[0], query)
        if method == "POST" and "delete" in query:
            for key in ElementTree.fromstring(body).iter():
                if key.tag.rpartition("}")[2] == "Key":
                    self.delete(f"{path.partition('/')[0]}/{key.text}")
            return 200, {"Content-Type": "application/xml"}, b"<DeleteResult></DeleteResult>"
        if method == "PUT" and not query.keys() & {"uploadId", "partNumber"}:
            self.put(path, body)
            return 200, {"ETag": f'"{self.objects[path].etag}"'}, b""
        if method == "DELETE":
            self.delete(path)
            return 204, {}, b""
        if method in ("GET", "HEAD"):
            return self._get(path, headers, method)
        return 501, {}, b""

    def _get(self, path: str, headers: dict[str, str], method: str) -> tuple[int, dict[str, str], bytes]:
        if (stored := self.objects.get(path)) is None:
            return (
                404,
                {"Content-Type": "application/xml"},
                b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>",
            )
        content = stored.content
        status = 200
        more = {
            "ETag": f'"{stored.etag}"',
            "Last-Modified": formatdate(stored.written, usegmt=True),
            "Content-Type": "binary/octet-stream",
        }
        if method == "HEAD":
            return status, {**more, "Content-Length": str(len(content))}, b""
        if byte_range := headers.get("range"):
            first, _, last = byte_range.removeprefix("bytes=").partition("-")
            start = int(first)
            end = min(int(last) if last else len(content) - 1, len(content) - 1)
            more["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            content = content[start : end + 1]
            status = 206
        return status, more, content

    def _list(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix = f"{bucket}/{query.get('prefix', [''])[0]}"
        delimiter = query.get("delimiter", [""])[0]
        after = query.get("continuation-token", [""])[0]
        contents = list[str]()
        folders = list[str]()
        last = ""
        place = max(bisect_left(self._paths, prefix), bisect_right(self._paths, after))
        while place < len(self._paths) and (path := self._paths[place]).startswith(prefix):
            if len(contents) + len(folders) >= _MAX_KEYS:
                break
            folder, is_folder, _ = path[len(prefix) :].partition(delimiter) if delimiter else (path, "", "")
            if is_folder:
                folders.append(f"{prefix}{folder}{delimiter}")
                # what is in it is not listed
                place = bisect_left(self._paths, f"{prefix}{folder}{chr(ord(delimiter) + 1)}")
            else:
                contents.append(path)
                place += 1
            last = self._paths[place - 1]
        else:
            last = ""
        cut = len(bucket) + 1
        entries = []
        for path in contents:
            stored = self.objects[path]
            entries.append(
                f"<Contents><Key>{escape(path[cut:])}</Key><Size>{len(stored.content)}</Size>"
                f"<ETag>{stored.etag}</ETag><LastModified>{_iso_time(stored.written)}</LastModified></Contents>"
            )
        for folder in folders:
            entries.append(f"<CommonPrefixes><Prefix>{escape(folder[cut:])}</Prefix></CommonPrefixes>")
        more = "<IsTruncated>false</IsTruncated>"
        if last:
            token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
            more = f"<IsTruncated>true</IsTruncated>{token}"
        return f"<ListBucketResult>{more}{''.join(entries)}</ListBucketResult>".encode()


def _iso_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", ""):
        content = b""
        while size := int((await reader.readline()).partition(b";")[0], 16):
            content += await reader.readexactly(size)
            await reader.readline()
        while (await reader.readline()).strip():
            pass
    else:
        content = await reader.readexactly(int(headers.get("content-length", 0)))
    if "aws-chunked" not in headers.get("content-encoding", ""):
        return content
    body = b""
    while True:
        line, _, content = content.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if not size:
            return body
        body = body + content[:size]
        content = content[size + 2 :]


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """A server for as long as the block lasts; its clients need :data:`CREDENTIALS`, or any others."""
    server = ObjectServer()
    try:
        yield server
    finally:
        server.close()
