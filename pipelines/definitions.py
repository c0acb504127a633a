"""The module that Dagster loads, in a process for each run and step, so its imports have to be fast."""

import gc

# Imported objects stay until the process ends. The garbage collector would go through them again and again
# during the imports, for a sixth of the CPU time, and once more at the end of the process, for a fifth.
collects = gc.isenabled()
gc.disable()
try:
    from pipelines.code_location import defs
finally:
    if collects:
        gc.enable()
gc.freeze()

__all__ = ["defs"]
