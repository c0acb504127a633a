"""Materializations, for ops that log them and for assets that return them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import dagster as dg

from halving import HalvingError
from halving.errors import StoreUnavailable

GROUP = "halving"


@dataclass(frozen=True)
class Materialized:
    """A partition of an asset that was made.

    Attributes:
        version: digest of its content, which becomes Dagster's data version.
        inputs: of each upstream asset, the digest of what this was made from; these edges are exact, which
            the partition mapping between assets is not.
        metadata: what people see in Dagster's UI, which plots numbers over time.
        page: where our page shows it, as the parts of a path: ``("runs", "digits", "digits-7f3a.0007")``.
    """

    asset: str
    partition: str
    version: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    page: Sequence[str] = ()

    def event(self) -> dg.AssetMaterialization:
        """The event, for ``context.log_event`` in an op."""
        tags = {"dagster/data_version": self.version}
        tags |= {f"dagster/input_data_version/{asset}": version for asset, version in self.inputs.items()}
        return dg.AssetMaterialization(
            self.asset, partition=self.partition, metadata=self._all_metadata(), tags=tags
        )

    def result(self, checks: Sequence[dg.AssetCheckResult] = ()) -> dg.MaterializeResult:
        """The result that an asset's own function returns."""
        return dg.MaterializeResult(
            metadata=self._all_metadata(), data_version=dg.DataVersion(self.version), check_results=checks
        )

    def _all_metadata(self) -> dict[str, Any]:
        described = {**page_link(*self.page), **self.metadata} if self.page else dict(self.metadata)
        return {**described, "inputs": dict(self.inputs)} if self.inputs else described


def add_partitions(context: Any, partitions: dg.DynamicPartitionsDefinition, keys: Sequence[str]) -> None:
    """Add dynamic partitions; those that exist stay as they are."""
    context.instance.add_dynamic_partitions(str(partitions.name), list(keys))


def asset_link(asset: str, partition: str) -> dg.MetadataValue:
    """A link to a partition's page in Dagster's UI."""
    return dg.MetadataValue.url(f"/assets/{asset}?view=partitions&partition={partition}")


def page_link(*parts: str) -> dict[str, dg.MetadataValue]:
    """Metadata with a link to a path of our page; empty unless ``HALVING_PAGE_URL`` says where people reach
    the page.
    """
    address = os.environ.get("HALVING_PAGE_URL", "").rstrip("/")
    return (
        {"halving": dg.MetadataValue.url("/".join([address, *(quote(part, safe="") for part in parts)]))}
        if address
        else {}
    )


@contextmanager
def expected_failures() -> Iterator[None]:
    """An error of Halving in this block fails the step with its message, without a traceback; for good unless
    the store was unavailable.
    """
    try:
        yield
    except HalvingError as error:
        raise dg.Failure(str(error), allow_retries=isinstance(error, StoreUnavailable)) from None
