"""How many examples a property test is tried on."""

import os

ALL = os.environ.get("PROPERTY_EXAMPLES") == "all"
"""Whether each property is tried on its full number of examples, as ``make test-all`` does; otherwise it is a
fifth of them.
"""

_MIN_EXAMPLES = 3


def examples(number: int) -> int:
    """The number of examples of a property whose full number is this one."""
    if ALL:
        return number
    return max(number // 5, min(number, _MIN_EXAMPLES))
