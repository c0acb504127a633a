"""The checks of ``halving doctor``: what may be wrong with a store, what that means, and what mends it.

A check is a function in a table, which changes nothing; what it may mend by itself it hands out. The
application adds checks of its own. The package must not know what a catalog, Dagster or a cluster is.
"""
