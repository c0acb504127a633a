"""The code by which a winner is judged, kept with its report: whatever the checkout says later, its version
is made of this.

The report's data names it by its digest, and is itself named by one.
"""

import json
from dataclasses import asdict
from typing import Any

from halving import Store
from halving.models.source_code import Code, code_of, warn_of_secrets
from halving.store.json_files import to_json
from resources.evaluation.asking import PredictionFailed
from resources.sweep_spec import SweepSpec

_held: dict[str, str] = {}
"""The text of each module when this process first judged by it: its fork server may hold that, and runs it
whatever the file says later.
"""


def code_here(spec: SweepSpec) -> Code | None:
    """The code of a spec's predictor and exporter, as it is on disk now; None: there is no predictor.

    Raises:
        InvalidInput: a file of it cannot be read.
    """
    if spec.predictor is None:
        return None
    return code_of(spec.predictor, *([spec.exporter] if spec.exporter else []))


def keep_code(store: Store, spec: SweepSpec, began_with: Code | None) -> str | None:
    """Put the code that judged into the store; gives its digest, for the report's data.

    None: there is no predictor.

    Raises:
        PredictionFailed: it is not what it was when the evaluation began, or when this process first judged
            by it, so nobody can say which of it has judged.
    """
    if began_with is None:
        return None
    now = code_here(spec) or Code({}, {})
    held = {path: _held.setdefault(path, text) for path, text in began_with.files.items()}
    before = {*held.items(), *began_with.files.items()}
    changed = sorted({path for path, _ in before ^ {*now.files.items()}})
    if changed or now != began_with:
        raise PredictionFailed(
            f"predictor {spec.predictor}: its code changed since this process began to judge by it "
            f"({', '.join(changed) or 'its packages'}), so what judged the winner is not known; "
            "let the files be, and materialize the sweep's evaluation_report in Dagster once more"
        )
    warn_of_secrets(spec.name, now.files, stacklevel=2)
    return store.put_blob(to_json(asdict(now)))


def code_of_report(store: Store, data: dict[str, Any]) -> Code | None:
    """The code that judged a report's winner; None: it has no predictor, or the report is from before reports
    had their code.

    Raises:
        NotFound: it is gone from the store.
        StoreError: it is damaged.
    """
    digest = data.get("code")
    return Code(**json.loads(store.get_blob(digest))) if digest else None
