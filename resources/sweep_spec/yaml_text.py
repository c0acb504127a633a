"""Simple data in YAML 1.2: a value is the number, the text or the truth value that it looks like."""

import re
from pathlib import Path
from typing import Any

import yaml

from halving.errors import InvalidInput

_TAG = "tag:yaml.org,2002:"
# The core schema of YAML 1.2.2, section 10.3.2: with it `1e-3` is a number, and `no`, `1:30` and `2026-03-01`
# are texts. Underscores between digits are YAML 1.1's: nobody who writes 1_000 wishes for a text. Each
# expression stands beside the characters that such a value may begin with; an empty value is null.
_CORE = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+(_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    "merge": (r"<<", ["<"]),
}


_WHOLE = re.compile(r"([-+]?[0-9_]{16,400})\.0*")  # a number that may be no double


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.2, and refuses duplicate keys, of which YAML would silently keep the last."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # without those of YAML 1.1

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys: set[str] = set()
        entries: Any = ()
        if isinstance(node, yaml.MappingNode):
            entries = node.value
        for key, _ in entries:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                if key.value in keys:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value} is given twice; give it once", key.start_mark
                    )
                keys.add(key.value)
        return super().construct_mapping(node, deep)


def _whole_number(loader: _Loader, node: Any) -> int:
    text = str(loader.construct_scalar(node))
    try:
        if text.startswith(("0x", "0o")):
            return int(text, 0)
        return int(text)
    except ValueError:  # It has the tag !!int by mistake, or more digits than Python reads.
        raise yaml.constructor.ConstructorError(
            None, None, f"{text:.80} is no whole number that can be read", node.start_mark
        ) from None


def _number(loader: _Loader, node: Any) -> float:
    text = str(loader.construct_scalar(node))
    try:
        number = float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
    except ValueError:  # It has the tag !!float by mistake.
        raise yaml.constructor.ConstructorError(
            None, None, f"{text:.80} is no number", node.start_mark
        ) from None
    if number == 0 and re.match(r"[-+]?[0._]*[1-9]", text):
        raise yaml.constructor.ConstructorError(
            None, None, f"{text:.80} is too small for a number and would be 0; give 0", node.start_mark
        )
    if (match := _WHOLE.fullmatch(text)) and int(match[1]) != number:
        raise yaml.constructor.ConstructorError(
            None, None, f"{text:.80} is no double; leave out the point", node.start_mark
        )
    return number


for _kind, (_expression, _first) in _CORE.items():
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_expression})\Z"), _first)
_Loader.add_constructor(f"{_TAG}int", _whole_number)
_Loader.add_constructor(f"{_TAG}float", _number)


def read_yaml(text: str | bytes) -> Any:
    """Read the simple data in YAML.

    Raises:
        YAMLError: it is no YAML, or a key is there twice; the message says where.
    """
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except RecursionError:
        raise yaml.YAMLError(
            "its lists and mappings are too deep in one another; give flatter ones"
        ) from None


def read_yaml_file(field: str, path: str | Path) -> Any:
    """Read the simple data in a YAML file.

    Args:
        field: what the file is, for the error.

    Raises:
        InvalidInput: there is no such file, or it is not YAML.
    """
    try:
        return read_yaml(Path(path).read_bytes())
    except OSError as error:
        raise InvalidInput(
            f"{field} {str(path)!r} is not accepted: {error.strerror}; give the path of a YAML file"
        ) from None
    except yaml.YAMLError as error:
        raise InvalidInput(f"{field} {str(path)!r} is not YAML: {error}") from None
