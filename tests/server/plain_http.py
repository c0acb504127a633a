"""Requests to servers of this machine, each over a connection of its own.

``httpx2.get`` and ``httpx2.Client`` read all of the machine's certificates first, which takes 35 ms of CPU.
"""

import ssl
from functools import partial
from typing import Any

import httpx2

_UNUSED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no address here is https


def client(**options: Any) -> httpx2.Client:
    return httpx2.Client(verify=_UNUSED, **options)


get = partial(httpx2.get, verify=_UNUSED)
post = partial(httpx2.post, verify=_UNUSED)
put = partial(httpx2.put, verify=_UNUSED)
