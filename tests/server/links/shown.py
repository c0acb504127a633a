"""What a shared page has in it: its data, unpacked."""

import base64
import gzip
import re


def data_of(page: bytes) -> str:
    """The facts of a page with the names of its runs, as text."""
    match = re.search(rb'id="data">([^<]+)<', page)
    assert match is not None, page[:500]
    return gzip.decompress(base64.b64decode(match[1])).decode(errors="replace")
