"""Reading dataset snapshots in training code: tables, loaders that resume at the row, and the cache of shards
on local disk.

It reads what was published; it must not know how a snapshot is made or which sweep uses it.
"""
