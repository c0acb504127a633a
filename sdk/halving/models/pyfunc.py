"""What MLflow imports to load an exported folder: the ``loader_module`` of its ``MLmodel``."""

from pathlib import Path
from typing import Any

from halving.models.model import Model, load_exported


class PyFunc:
    """A model with the method that MLflow calls."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """The predictions for a data frame, or a dict of columns. It has no params."""
        return self._model.predict(model_input)


def _load_pyfunc(path: str) -> PyFunc:
    """Called by ``mlflow.pyfunc.load_model`` with the folder."""
    return PyFunc(load_exported(Path(path)))
