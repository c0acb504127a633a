"""Arrow's clients of S3 as stores need them, and one in reserve for processes that are forked.

Arrow keeps a lock, which its S3 clients share, for as long as any of them waits for an answer, and takes it
alone to make a client or to end. A child that is forked in such a moment has that lock taken for ever: it can
use a client that is there, but make none, nor let Arrow end. Its parent's clients are of no use to it,
because it would talk into their connections. So each process keeps one that it does not use itself. (A child
of such a child has none, and waits for ever if its grandparent was forked in such a moment.)
"""

import atexit
import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.store.faults import store_faults

if TYPE_CHECKING:
    from pyarrow import fs

    _Options = tuple[tuple[str, Any], ...]

# One call to an object store that does not answer ends within half a minute, with its tries; whoever can wait
# longer tries again.
CONNECT_SECONDS = 2.0
SILENCE_SECONDS = 3.0  # The time with less than a byte a second in either direction.
TRIES = 3
_OPTIONS = ("endpoint_override", "scheme", "region", "tls_ca_file_path", "force_virtual_addressing")
_RESERVE: "dict[_Options, fs.S3FileSystem]" = {}
_INHERITED: "dict[_Options, fs.S3FileSystem]" = {}


def open_s3(bucket: str, query: dict[str, list[str]]) -> "fs.S3FileSystem":
    """A client for a bucket; in a forked child it is the one that its parent kept in reserve.

    That is so only where the parent had one with the same options.

    Args:
        query: options as in an address; see :func:`halving.store.filesystem.open_filesystem`.

    Raises:
        InvalidInput: an option is unknown, or has a value that it does not have.
        StoreError: the bucket's region is not given, and not to be found out.
    """
    options = tuple(sorted(_options(bucket, query).items()))
    if options in _INHERITED:
        return _INHERITED[options]
    if options not in _RESERVE:
        _RESERVE[options] = _client(options)
    return _client(options)


def _options(bucket: str, query: dict[str, list[str]]) -> dict[str, Any]:
    """The options of a client by an address and the environment."""
    if unknown := sorted(set(query) - set(_OPTIONS)):  # the names only: a value may be a secret
        raise InvalidInput(
            f"option {unknown[0]!r} in the address of s3://{bucket} is not accepted: give some of "
            f"{', '.join(_OPTIONS)}"
        )
    options: dict[str, Any] = {name: values[-1] for name, values in query.items()}
    if "force_virtual_addressing" in options:
        flag = options["force_virtual_addressing"]
        if flag not in ("true", "false"):
            raise InvalidInput(
                f"force_virtual_addressing = {flag!r} in the address of s3://{bucket} is not accepted: "
                "give true or false"
            )
        options["force_virtual_addressing"] = flag == "true"
    endpoint = (
        options.get("endpoint_override")
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
    )
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        scheme, _, place = endpoint.rstrip("/").rpartition("://")
        options |= {"endpoint_override": place, "scheme": options.get("scheme") or scheme or "https"}
        # A self-hosted S3 server usually has one region, and does not check it.
        region = region or "us-east-1"
    return options | {"region": region or _region_of(bucket)}


def _client(options: "_Options") -> "fs.S3FileSystem":
    """Make a client, which connects when it is used."""
    from pyarrow import fs

    return fs.S3FileSystem(
        **dict(options),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENCE_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
        allow_delayed_open=True,  # a small file is then one PUT, not the three requests of a multipart upload
    )


@lru_cache
def _region_of(bucket: str) -> str:
    """The region of a bucket, asked for once, because a forked child may not be able to ask."""
    from pyarrow import fs

    with store_faults(f"cannot find the region of s3://{bucket}; AWS_REGION names it"):
        return str(fs.resolve_s3_region(bucket))


def _in_child() -> None:
    """Take over the clients that the parent had in reserve, in a forked child."""
    _INHERITED.clear()
    _INHERITED.update(_RESERVE)
    _RESERVE.clear()
    if _INHERITED:
        _exit_without_ending_s3()


def _exit_without_ending_s3() -> None:
    """Let this process end without Arrow's end of S3.

    It must then end without the destructors of C++ as well, which crash where that is left out.
    """
    import ctypes

    atexit.unregister(sys.modules["pyarrow.fs"].ensure_s3_finalized)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc: it calls _exit with the status
        libc.on_exit(libc._exit, None)


os.register_at_fork(after_in_child=_in_child)
