"""Starting a process that needs nothing of the program's main module."""

import sys
import threading
from multiprocessing.process import BaseProcess

# a second thread would take what the first has hidden for what was there, and leave it so
_starting = threading.Lock()


def start_without_main(process: BaseProcess) -> None:
    """Start a forked process that is given nothing which the main module defines, without importing that
    module in it.

    ``multiprocessing`` would: where the program is ``dagster job execute``, each trial would import all of
    Dagster, which takes a second of CPU and 80 MB. The fork server cannot import it ahead, as until 3.13.8
    Python does not (python/cpython#126631).
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
