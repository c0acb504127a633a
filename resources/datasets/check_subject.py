"""The input and the result of a check of a snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from halving import Dataset
from halving.text import comma_list
from resources.datasets.example_rows import Row
from resources.datasets.shard_writing import IDENTITY, ROW
from resources.datasets.statistics import Statistics, all_columns
from resources.sweep_spec.dataset import DatasetSource


@dataclass(frozen=True)
class Outcome:
    """Whether a check passed, and why.

    Attributes:
        rows: examples of the rows that it is about: their ``split`` and values.
    """

    passed: bool
    reason: str
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Subject:
    """A snapshot that is checked.

    Attributes:
        source: the source that it was taken of, with the settings of its checks.
        before: the manifest of the dataset's snapshot before this one, if there is one.
    """

    dataset: Dataset
    source: DatasetSource
    before: Mapping[str, Any] | None

    @cached_property
    def columns(self) -> Statistics:
        """The statistics of all rows."""
        return all_columns(self.dataset.manifest)

    @property
    def schema(self) -> dict[str, str]:
        """The columns and their types, as Arrow writes them."""
        schema: dict[str, str] = self.dataset.manifest["schema"]
        return schema

    @property
    def is_dealt_by_hash(self) -> bool:
        """Whether a hash decides the split of a row, and not a column or the time."""
        return not (self.source.split_column or self.source.split_times)

    @property
    def kind_of_rows(self) -> str:
        """The kind of hashes in which equal rows agree."""
        if self.source.checks.identity:
            return IDENTITY
        return ROW

    @property
    def by_identity(self) -> str:
        """For a reason: the columns by which rows are compared, unless these are all."""
        if not self.source.checks.identity:
            return ""
        return f", by {comma_list(self.source.checks.identity)}"
