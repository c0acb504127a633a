"""Texts without the folders of the machine on which they were written."""

import re
from typing import Any

# A slash behind a colon begins a path, as in PATH=/a/b:/c/d, unless both begin an address: s3://lake.
_FOLDERS = re.compile(r"(?:(?<=file://)|(?<=:///)|(?<![\w./-])(?<!:(?=//)))/(?:[^\s/'\":=,;]+/)+")


def without_folders(value: Any) -> Any:
    """A text, or the texts in lists and dicts, with ``…/train.py`` for ``/home/ada/x/train.py``.

    Addresses such as ``s3://lake/clicks`` stay as they are.
    """
    if isinstance(value, str):
        return _FOLDERS.sub("…/", value)
    if isinstance(value, dict):
        return {name: without_folders(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(part) for part in value]
    return value
