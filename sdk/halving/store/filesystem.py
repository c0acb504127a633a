"""A store's address and the Arrow filesystem behind it: opening and uploading."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from halving.errors import InvalidInput
from halving.store.s3 import open_s3

if TYPE_CHECKING:
    from pyarrow import fs

_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:)/(?!/)")


def check_address(address: str) -> None:
    """Refuse an address that holds credentials, or that only looks like a folder.

    Credentials are not shown.

    Raises:
        InvalidInput: it holds some, or has one slash after its scheme: a folder of that name would be lost
            with the machine.
    """
    if match := _ONE_SLASH.match(address):
        redacted = match[0] + address[match.end() :].rpartition("@")[2]
        raise InvalidInput(
            f"the store's address = {redacted!r} is not accepted: give {match[1]}//… for an object store, or "
            "./… for a folder of that name"
        )
    if "://" not in address:
        return
    parts = urlsplit(address)
    user, at, _ = parts.netloc.rpartition("@")
    if at and (parts.scheme == "s3" or ":" in user):
        raise InvalidInput(
            f"the store's address {parts.scheme}://…@{parts.hostname or ''}{parts.path} is not accepted: "
            "it holds credentials, which would "
            "be written into records and logs; give them where S3 clients look: AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, a profile, "
            "or the machine's role"
        )


def open_filesystem(address: str) -> "tuple[fs.FileSystem, str]":
    """The filesystem and the path on it that an address means.

    An S3 address may carry ``endpoint_override=host:port``, ``scheme=http``, ``region``, ``tls_ca_file_path``
    and ``force_virtual_addressing``; without them ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL`` and
    ``AWS_REGION`` count.

    Raises:
        InvalidInput: Arrow knows no such scheme, or the address has an unknown option, or a value that the
            option does not have.
    """
    from pyarrow import ArrowException, fs

    parts = urlsplit(address, allow_fragments=False)  # a file's name may have a #
    if parts.scheme == "s3":
        return open_s3(parts.netloc, parse_qs(parts.query)), f"{parts.netloc}{unquote(parts.path)}".rstrip(
            "/"
        )
    try:
        filesystem, base = fs.FileSystem.from_uri(address)
    except (ArrowException, ValueError) as error:
        raise InvalidInput(f"the store's address {address!r} is not accepted: {error}") from None
    return filesystem, base.rstrip("/")


def upload(filesystem: "fs.FileSystem", path: str, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file that appears whole or not at all, and replaces what was there in one step.

    Up to 10 MiB are one PUT. More is a multipart upload; when its process is killed, the parts stay in the
    bucket, unseen, until a lifecycle rule (``AbortIncompleteMultipartUpload``) deletes them.
    """
    import ctypes

    # Store exactly these bytes, whatever the suffix of the name.
    stream = filesystem.open_output_stream(path, compression=None)
    try:
        for chunk in chunks:
            stream.write(chunk)
    except BaseException:
        # Closing would publish the part that was written, and Arrow cannot abort (apache/arrow#40502).
        # Freeing the stream closes it, too, and hangs if that happens when the interpreter exits. So it is
        # never freed; it holds 10 MiB at most.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))
        raise
    stream.close()
