"""Predictors of exported versions, what they answer, and one whose code is only in its manifest."""

from collections.abc import Callable
from typing import Any

HERE = "tests.served_models:"
JUDGED: dict[str, Callable[[float], Any]] = {
    "predict": lambda x: "high" if x > 0.5 else "low",
    "predict_numbers": lambda x: 2 * x + 1,
}
GONE = "gone_elsewhere.model:predict"
"""A predictor that only manifests know: here it cannot be imported."""
GONE_TEXT = """
from gone_elsewhere.scale import high


def predict(run, table):
    threshold = run.restore(threshold=None)["threshold"]
    return ["high" if high(x, threshold) else "low" for x in table["x"].to_pylist()]
"""
SCALE_TEXT = "def high(x, threshold):\n    return x > threshold\n"
GONE_CODE = {
    "gone_elsewhere/__init__.py": "",
    "gone_elsewhere/model.py": GONE_TEXT,
    "gone_elsewhere/scale.py": SCALE_TEXT,
}
