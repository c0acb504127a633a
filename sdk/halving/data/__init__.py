"""Reading dataset snapshots in training code.

It reads what was published; it must not know how a snapshot is made or which sweep uses it.
"""
