"""Writes ``MLmodel`` and ``python_env.yaml``, by which MLflow's pyfunc flavor reads an exported folder."""

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

from halving.models.exported import CODE
from halving.models.manifest import Manifest


def write_mlmodel(folder: Path, manifest: Manifest, size: int) -> None:
    """Write both files; ``size`` is the number of bytes of all others.

    They are YAML, of which JSON is a part. There is no signature: :meth:`halving.models.model.Model.predict`
    checks the columns, and knows more of them than MLflow's types say.
    """
    now = datetime.now(UTC)
    mlmodel = {
        "flavors": {
            "python_function": {
                "code": CODE,
                "data": ".",
                "env": {"virtualenv": "python_env.yaml"},
                "loader_module": "halving.models.pyfunc",
                "python_version": manifest.python,
            }
        },
        "metadata": {
            "model": manifest.model,
            "run": manifest.run,
            "checkpoint": manifest.checkpoint,
            "snapshot": manifest.snapshot,
        },
        "model_size_bytes": size,
        "model_uuid": uuid.uuid4().hex,
        "utc_time_created": f"{now:%Y-%m-%d %H:%M:%S.%f}",
    }
    environment = {
        "python": manifest.python,
        "build_dependencies": [],
        "dependencies": ["-r requirements.txt"],
    }
    for name, content in (("MLmodel", mlmodel), ("python_env.yaml", environment)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
