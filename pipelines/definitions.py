"""What Dagster loads, in a process for each run and each step that does little else: in as little time as its
imports take.
"""

import gc

# What is imported stays to the end. The collector would look through it again and again meanwhile, for a
# sixth of the CPU time, and once more at the end of the process, for a fifth.
collects = gc.isenabled()
gc.disable()
try:
    from pipelines.code_location import defs
finally:
    if collects:
        gc.enable()
gc.freeze()

__all__ = ["defs"]
