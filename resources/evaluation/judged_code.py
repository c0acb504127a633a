"""The code that judged a winner, kept with the report so that the winner's version is made of it.

The report's data names it by its digest.
"""

import json
from dataclasses import asdict
from typing import Any

from halving import Store
from halving.models.source_code import Code, code_of, warn_of_secrets
from halving.store.json_files import to_json
from resources.evaluation.predictor_calls import PredictionFailed
from resources.sweep_spec import SweepSpec

_first_texts: dict[str, str] = {}
"""The text of each module when this process first judged by it.

The fork server may have imported the module, and then runs that text even if the file changes.
"""


def code_here(spec: SweepSpec) -> Code | None:
    """Read the code of a spec's predictor and exporter from disk; None without a predictor.

    Raises:
        InvalidInput: a file of it cannot be read.
    """
    if spec.predictor is None:
        return None
    functions = [spec.predictor, spec.exporter]
    return code_of(*(function for function in functions if function))


def keep_code(store: Store, spec: SweepSpec, began_with: Code | None) -> str | None:
    """Put the code that judged into the store; return its digest, or None without a predictor.

    Raises:
        PredictionFailed: the code changed since the evaluation began, or since this process first judged by
            it, so nobody can say which code judged.
    """
    if began_with is None:
        return None
    now = code_here(spec) or Code({}, {})
    first_texts = {path: _first_texts.setdefault(path, text) for path, text in began_with.files.items()}
    before = {*first_texts.items(), *began_with.files.items()}
    changed = sorted({path for path, _ in before ^ {*now.files.items()}})
    if changed or now != began_with:
        raise PredictionFailed(
            f"predictor {spec.predictor}: its code changed since this process began to judge by it "
            f"({', '.join(changed) or 'its packages'}), so what judged the winner is not known; "
            "leave the files as they are, and materialize the sweep's evaluation_report in Dagster once more"
        )
    warn_of_secrets(spec.name, now.files, stacklevel=2)
    return store.put_blob(to_json(asdict(now)))


def code_of_report(store: Store, data: dict[str, Any]) -> Code | None:
    """Read the code that judged a report's winner.

    None if there was no predictor, or the report is from before reports kept their code.

    Raises:
        NotFound: the code is gone from the store.
        StoreError: it is damaged.
    """
    digest = data.get("code")
    if not digest:
        return None
    return Code(**json.loads(store.get_blob(digest)))
