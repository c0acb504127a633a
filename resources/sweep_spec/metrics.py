"""The metrics that the evaluation computes, and for which of them a higher value is better."""

CLASS_METRICS, NUMBER_METRICS = ["accuracy", "f1_macro"], ["r2", "mae", "rmse"]
HIGHER_IS_BETTER = {"accuracy": True, "f1_macro": True, "r2": True, "mae": False, "rmse": False}
