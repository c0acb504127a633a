"""The spec's ``final``: train the winner's params again from scratch, with several seeds and more rows."""

from collections.abc import Collection
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from halving.errors import InvalidInput
from halving.text import comma_list, did_you_mean
from resources.sweep_spec.base import MAX_COUNT, Name, Strict
from resources.sweep_spec.dataset import REQUIRED_SPLITS

TEST, TRAIN, VALIDATION = REQUIRED_SPLITS
_MAX_SEEDS = _MAX_SPLITS = 100


class Final(Strict):
    """The final training: ``seeds`` whole trainings, in addition to the search."""

    seeds: int = Field(
        default=3,
        ge=1,
        le=_MAX_SEEDS,
        description="How many trainings, each with another seed; the median one may be promoted.",
    )
    on: Annotated[list[Name], Field(min_length=1, max_length=_MAX_SPLITS)] = Field(
        default=[TRAIN, VALIDATION],
        description="Splits of the dataset that together are the trainings' train split; never test. What is "
        "trained on says nothing as a validation split any more, so the last checkpoint counts.",
    )
    epochs: int | None = Field(
        default=None,
        ge=1,
        le=MAX_COUNT,
        description="Epochs of each training (default: the search's largest budget).",
    )

    def unknown_split(self, splits: Collection[str]) -> str | None:
        """The problem of ``on`` for a dataset with these splits; None if it has them all."""
        for split in self.on:
            if split not in splits:
                hint = did_you_mean(split, splits)
                return f"the dataset has no split {split!r}{hint}; it has {comma_list(splits)}"
        return None

    def check_splits(self, splits: Collection[str]) -> None:
        """Check against a snapshot, which may have splits that a spec cannot know beforehand.

        Args:
            splits: stored splits; folds stand for train and validation, which consist of them.

        Raises:
            InvalidInput: it lacks one of ``on``.
        """
        names = list(splits)
        if any(name.startswith("fold-") for name in splits):
            names += {TRAIN, VALIDATION} - set(splits)
        if problem := self.unknown_split(names):
            raise InvalidInput(f"final.on = {self.on} is not accepted: {problem}")


_ON_IN_YAML = (True, "true", "True")


def _with_on_key(value: Any) -> Any:
    """Restore the key ``on``, which YAML 1.1 reads as true if it is not quoted, and JSON then as text."""
    if not isinstance(value, dict):
        return value
    fields = {}
    for key, content in value.items():
        name = key
        if key in _ON_IN_YAML:
            name = "on"
        fields[name] = content
    return fields


FinalTraining = Annotated[Final, BeforeValidator(_with_on_key)] | None
"""The type of the spec's ``final``."""
