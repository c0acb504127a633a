"""The ``halving`` command and its commands on the store alone.

It prints what the query and maintenance rooms return. It must not know the catalog: applications add their
own commands by entry points.
"""
