"""The list of prices: one YAML file with its date and sources.

The shipped one, or the one that ``HALVING_PRICES`` names.
"""

import datetime
import os
import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from halving.errors import InvalidInput
from resources.sweep_spec.base import Strict
from resources.sweep_spec.parsing import problems_of_model
from resources.sweep_spec.requirements import Label
from resources.sweep_spec.yaml_text import read_yaml

VARIABLE = "HALVING_PRICES"
SHIPPED = Path(__file__).parent / "prices.yaml"


class Price(Strict):
    """A price and where it is from."""

    price: float = Field(ge=0, description="In the list's currency.")
    source: str = Field(default="", description="Where it is from.")


class SpotShare(Strict):
    """What nodes that may be reclaimed cost."""

    share: float = Field(ge=0, le=1, description="Share of the price of a node that is not.")
    source: str = Field(default="", description="Where it is from.")


class Prices(Strict):
    """What resources cost."""

    date: datetime.date = Field(description="The day of the prices.")
    currency: str = Field(
        default="USD", min_length=1, max_length=10, description="The currency of all prices."
    )
    gpu_hour: dict[Label, Price] = Field(
        description=(
            "A GPU and hour, by resources.gpu_type or words of the name that its driver gives it; default "
            "for all others."
        )
    )
    cpu_hour: Price = Field(description="A core and hour of a trial without GPUs.")
    gb_month: Price = Field(description="10^9 bytes in the store, a month.")
    spot: SpotShare = Field(default=SpotShare(share=1.0), description="What resources.spot costs.")

    def node_hour(self, *, gpus: int, cpus: float, gpu_type: str | None, spot: bool) -> float:
        """The price of a node for an hour: of its GPUs, or of its cores if it has none."""
        full = cpus * self.cpu_hour.price
        if gpus:
            full = gpus * self._gpu_price(gpu_type or "default").price
        if spot:
            return full * self.spot.share
        return full

    def _gpu_price(self, gpu_type: str) -> Price:
        """The price of a type of GPU: of the entry of this name, or else with the most of its words.

        So for an H100 80GB the entry ``h100-80gb`` comes before ``h100``.
        """
        price = self.gpu_hour.get(gpu_type)
        if price is not None:
            return price
        words = _words(gpu_type)
        matching = [
            (len(_words(name)), name) for name in self.gpu_hour if name != "default" and _words(name) <= words
        ]
        if not matching:
            return self.gpu_hour["default"]
        return self.gpu_hour[max(matching)[1]]

    def about(self) -> str:
        """The list's name in a line, for people."""
        return f"prices of {self.date}"


def _words(name: str) -> set[str]:
    return {*re.findall("[a-z0-9]+", name.lower())}


def load_prices() -> Prices:
    """Load the prices in force.

    Raises:
        InvalidInput: the file that ``HALVING_PRICES`` names cannot be read, or a field of it, which the
            message names, is not accepted.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return Prices.model_validate(read_yaml(SHIPPED.read_bytes()))
    try:
        content: Any = read_yaml(Path(path).read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise InvalidInput(
            f"{VARIABLE} = {path!r} is not accepted: {error}; give the path of a list of prices in YAML"
        ) from None
    try:
        prices = Prices.model_validate(content or {})
    except ValidationError as error:
        problems = "\n".join(problems_of_model(error, Prices))
        raise InvalidInput(f"{VARIABLE} = {path!r} is not accepted:\n{problems}") from None
    if "default" not in prices.gpu_hour:
        raise InvalidInput(
            f"{VARIABLE} = {path!r} is not accepted:\ngpu_hour: {sorted(prices.gpu_hour)} lacks default: "
            "give the price of all other GPUs"
        )
    return prices
