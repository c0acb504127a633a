"""The trained run that is passed to a predictor or an evaluator.

``predict(run, table)`` gets rows without their target, a ``pyarrow.Table``, and returns one of

- a prediction for each row: a list, a numpy array or a tensor of shape (rows,), of the target's kind;
- the probability of each class: an array of shape (rows, classes), its columns in the sorted order of all
  classes of the dataset's target;
- the same as a dict of class to an array of shape (rows,).

Probabilities lie within 0..1 and sum to 1 in each row; the predicted class is the most probable one.

``evaluate(run, split)`` gets the split's name, reads it from ``run.dataset``, and returns a
:class:`halving.Evaluation`.

Both run in a process of their own, whose time and memory are limited (``evaluation_limits`` in the spec).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from halving.checkpoints.restoring import restore
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

    def __init__(
        self, store: Store, *, params: Mapping[str, Any], dataset: Dataset, checkpoint_digest: str
    ) -> None:
        self.store = store
        self.params = dict(params)
        self.dataset = dataset
        self.checkpoint = checkpoint_digest

    def restore(self, **state: Any) -> dict[str, Any]:
        """Fill ``state`` from the checkpoint like :meth:`halving.Run.restore`, but no random generators."""
        load = partial(restore, self.store, self.checkpoint, state, with_rng=False)
        return retry_while_unavailable(self.store, f"restore() of {self.checkpoint}", load)
