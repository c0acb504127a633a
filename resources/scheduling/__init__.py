"""Where the decisions of the search meet SQL: the scheduler, its transaction, the state cache, leases, sweeps
and warm starts.

It holds the sweep's lock and writes what was decided; it must not know processes, pods or Dagster.
"""
