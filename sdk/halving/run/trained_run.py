"""A trained run, as a predictor gets it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from halving.checkpoints import serialization
from halving.data.dataset import Dataset
from halving.store.retry import retry_while_unavailable
from halving.store.store import Store


class TrainedRun:
    """A trial's hyperparameters, its dataset snapshot, and one of its checkpoints to restore.

    Attributes:
        params: the hyperparameters.
        dataset: the snapshot that the predictions are for.
        checkpoint: digest of the checkpoint, ``sha256:…``.
    """

    def __init__(self, store: Store, *, params: Mapping[str, Any], dataset: Dataset, checkpoint_digest: str) -> None:
        self.store, self.params, self.dataset, self.checkpoint = store, dict(params), dataset, checkpoint_digest

    def restore(self, **state: Any) -> dict[str, Any]:
        """Fill ``state`` from the checkpoint, as :meth:`halving.Run.restore` does, but leave the random generators as they are."""
        load = partial(serialization.restore, self.store, self.checkpoint, state, with_rng=False)
        return retry_while_unavailable(self.store, f"restore() of {self.checkpoint}", load)
