"""The policy in force for a store.

It is the file that ``HALVING_RETENTION`` names, else ``retention.yaml`` in the store's root, else the shipped
default.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import yaml

from halving import Store
from halving.errors import InvalidInput, NotFound
from resources.retention.policy import Policy, parse_policy
from resources.sweep_spec.yaml_text import read_yaml

VARIABLE = "HALVING_RETENTION"
NAME = "retention.yaml"
SHIPPED = Path(__file__).parent / "default.yaml"


@dataclass(frozen=True)
class PolicyFile:
    """A policy, and where it was read.

    Attributes:
        source: the file's name, for messages.
        shipped: whether it is the shipped default.
    """

    policy: Policy
    source: str
    shipped: bool = False


def load_policy(store: Store) -> PolicyFile:
    """The policy in force for a store.

    Raises:
        InvalidInput: it is not accepted, or the file that ``HALVING_RETENTION`` names cannot be read.
        StoreError: the store does not say whether it has one.
    """
    if path := os.environ.get(VARIABLE):
        try:
            return _read(Path(path).read_bytes(), path)
        except OSError as error:
            raise InvalidInput(
                f"{VARIABLE} = {path!r} is not accepted: {error.strerror}; give the path of a YAML file"
            ) from None
    try:
        return _read(store.read(NAME), store.address(NAME))
    except NotFound:
        return _read(SHIPPED.read_bytes(), "the shipped default", shipped=True)


def _read(content: bytes, source: str, *, shipped: bool = False) -> PolicyFile:
    try:
        data = read_yaml(content)
    except yaml.YAMLError as error:
        raise InvalidInput(f"the retention policy {source} is not YAML: {error}") from None
    return PolicyFile(parse_policy(data, source), source, shipped)
