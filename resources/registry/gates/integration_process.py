"""The process in which a candidate's tests run.

``python -m resources.registry.gates.integration_process FUNCTION FOLDER``
"""

import sys

from halving.errors import HalvingError
from halving.models.answering import end_with_asker
from halving.trial.import_string import import_function, where
from resources.evaluation.memory_limit import goes_first


def main(path: str, folder: str) -> int:
    """Call the function with the folder; if it raises, print what and where last, and return 1."""
    end_with_asker()
    goes_first()
    try:
        import_function("integration_tests", path)(folder)
    except HalvingError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # noqa: BLE001  # tests raise anything, AssertionError above all
        print(f"{type(error).__name__} at {where(error)}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
