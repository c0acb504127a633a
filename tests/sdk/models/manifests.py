"""The manifest of a model's version."""

from typing import Any

ABOUT: dict[str, Any] = {
    **dict.fromkeys(
        (
            "model",
            "run",
            "checkpoint",
            "predictor",
            "exporter",
            "dataset",
            "snapshot",
            "framework",
            "python",
            "report",
        ),
        "",
    ),
    **{name: {} for name in ("params", "input_schema", "output_schema", "code", "metrics")},
    **{name: [] for name in ("complete", "requirements")},
}
