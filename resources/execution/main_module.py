"""Starts processes that need nothing of the program's main module."""

import sys
import threading
from multiprocessing.process import BaseProcess

# Without it, a second thread would restore what the first one has hidden, and leave it hidden.
_starting = threading.Lock()


def start_without_main(process: BaseProcess) -> None:
    """Start a forked process without importing the main module in it.

    The process must need nothing that the main module defines. ``multiprocessing`` would import it: if the
    program is ``dagster job execute``, each trial would import all of Dagster, which takes a second of CPU
    and 80 MB. The fork server cannot import it ahead of time, because until 3.13.8 Python does not
    (python/cpython#126631).
    """
    main = sys.modules["__main__"]
    with _starting:
        spec = main.__spec__
        file = getattr(main, "__file__", None)
        main.__spec__ = main.__file__ = None
        try:
            process.start()
        finally:
            main.__spec__ = spec
            if file is None:
                del main.__file__
            else:
                main.__file__ = file
