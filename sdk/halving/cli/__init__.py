"""The ``halving`` command and its commands on the store alone.

It prints what the query and maintenance rooms give; it must not know the catalog: the application adds its own commands by entry points.
"""
