"""A trial after training, as a predictor gets it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from halving.checkpoints import serialization
from halving.data.dataset import Dataset
from halving.store.retry import retry_while_away
from halving.store.store import Store


class TrainedRun:
    """What a predictor is given: a trial's params and snapshot, and one checkpoint of it to restore."""

    def __init__(self, store: Store, *, params: Mapping[str, Any], dataset: Dataset, checkpoint_digest: str) -> None:
        self.store, self.params, self.dataset, self.checkpoint = store, dict(params), dataset, checkpoint_digest

    def restore(self, **state: Any) -> dict[str, Any]:
        """Fill ``state`` from the checkpoint, as :meth:`Run.restore` does, leaving random generators alone."""
        load = partial(serialization.restore, self.store, self.checkpoint, state, with_rng=False)
        return retry_while_away(self.store, f"restore() of {self.checkpoint}", load)
