"""The metrics of an evaluation: scikit-learn's scorers by name, and the short names mae and rmse.

They are listed here because scikit-learn takes half a second to import; a test compares the list with it.
Scorers of clusterings, and of several labels a row, are left out: a row has one target.
"""

from halving.text import comma_list, did_you_mean

CLASS_METRICS = ["accuracy", "f1_macro"]
NUMBER_METRICS = ["r2", "mae", "rmse"]
"""The metrics that are computed if a spec names none, for classes and for numbers."""

PROBABILITY_SCORERS = frozenset(
    {
        "average_precision",
        "d2_brier_score",
        "d2_log_loss_score",
        "neg_brier_score",
        "neg_log_loss",
        "roc_auc",
        "roc_auc_ovo",
        "roc_auc_ovo_weighted",
        "roc_auc_ovr",
        "roc_auc_ovr_weighted",
        "top_k_accuracy",
    }
)
"""Scorers of classes that need the probability of each class."""

CLASS_SCORERS = PROBABILITY_SCORERS | {
    "accuracy",
    "balanced_accuracy",
    "f1",
    "f1_macro",
    "f1_micro",
    "f1_weighted",
    "jaccard",
    "jaccard_macro",
    "jaccard_micro",
    "jaccard_weighted",
    "matthews_corrcoef",
    "neg_negative_likelihood_ratio",
    "positive_likelihood_ratio",
    "precision",
    "precision_macro",
    "precision_micro",
    "precision_weighted",
    "recall",
    "recall_macro",
    "recall_micro",
    "recall_weighted",
}

TWO_CLASS_SCORERS = frozenset(
    {
        "f1",
        "jaccard",
        "neg_negative_likelihood_ratio",
        "positive_likelihood_ratio",
        "precision",
        "recall",
        "roc_auc",
    }
)
"""Scorers that need exactly two classes; the greater one is the positive one."""

SHORT_NAMES = {"mae": "neg_mean_absolute_error", "rmse": "neg_root_mean_squared_error"}
"""Errors without the scorer's negative sign, so that lower is better."""

NUMBER_SCORERS = frozenset(
    {
        *SHORT_NAMES,
        "d2_absolute_error_score",
        "explained_variance",
        "neg_max_error",
        "neg_mean_absolute_error",
        "neg_mean_absolute_percentage_error",
        "neg_mean_gamma_deviance",
        "neg_mean_poisson_deviance",
        "neg_mean_squared_error",
        "neg_mean_squared_log_error",
        "neg_median_absolute_error",
        "neg_root_mean_squared_error",
        "neg_root_mean_squared_log_error",
        "r2",
    }
)

SCORERS = CLASS_SCORERS | NUMBER_SCORERS


def higher_is_better(metric: str) -> bool:
    """Whether a higher value is better: scikit-learn's signs make it so, except for mae and rmse."""
    return metric not in SHORT_NAMES


def check_metric(metric: str) -> str:
    """Refuse a name that is no scorer of one target a row.

    Raises:
        ValueError: there is no such scorer; it names a similar one.
    """
    if metric not in SCORERS:
        raise ValueError(
            f"scikit-learn has no such scorer for a table{did_you_mean(metric, sorted(SCORERS))}; there are "
            f"{comma_list(sorted(SCORERS))}"
        )
    return metric
