"""Which direction of a metric is the better one, guessed from its name."""

import re
from typing import Literal

Direction = Literal["minimize", "maximize"]

_MINIMIZED = frozenset(
    [
        "bpb",
        "bpc",
        "brier",
        "cer",
        "cost",
        "divergence",
        "duration",
        "ece",
        "err",
        "error",
        "errors",
        "fid",
        "kl",
        "latency",
        "logloss",
        "loss",
        "losses",
        "mae",
        "mape",
        "mse",
        "nll",
        "perplexity",
        "ppl",
        "regret",
        "rmse",
        "seconds",
        "ter",
        "time",
        "wer",
    ]
)
_MAXIMIZED = frozenset(
    [
        "acc",
        "accuracy",
        "ap",
        "auc",
        "auprc",
        "auroc",
        "bleu",
        "dice",
        "elo",
        "f1",
        "hits",
        "iou",
        "likelihood",
        "map",
        "meteor",
        "mfu",
        "miou",
        "mrr",
        "ndcg",
        "precision",
        "psnr",
        "r2",
        "recall",
        "return",
        "returns",
        "reward",
        "rewards",
        "rouge",
        "score",
        "ssim",
        "success",
        "throughput",
        "top1",
        "top5",
        "win",
    ]
)


def guess_direction(name: str) -> Direction | None:
    """Guess from a metric's name whether less or more of it is better; None where its words do not say.

    The last word that says something decides: ``accuracy_loss`` is minimized, ``loss/accuracy`` maximized.
    """
    separated = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    for word in reversed(re.split(r"[^a-z0-9]+", separated.lower())):
        if word in _MINIMIZED:
            return "minimize"
        if word in _MAXIMIZED:
            return "maximize"
    return None
