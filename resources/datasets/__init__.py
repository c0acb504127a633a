"""Dataset snapshots: made from a source, published by content, tracked by DVC.

It knows the store and the catalog; it must not know sweeps beyond the source that a spec names.
"""
