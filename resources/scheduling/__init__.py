"""The search's decisions on the catalog: scheduler, transactions, state cache, leases, sweeps, warm starts.

It holds the sweep's lock and writes the decisions; it must not know processes, pods or Dagster.
"""
