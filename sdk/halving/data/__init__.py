"""Reading dataset snapshots in training code: tables, resumable loaders, and a cache of shards on disk.

The package reads what was published. It must not know how a snapshot is made or which sweep uses it.
"""
