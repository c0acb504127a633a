"""Dataset snapshots: rows of a source dealt into splits, cut into shards, published and checked.

DVC tracks their manifests. This package knows the store, the catalog and the features that labels are joined
with; it must not know sweeps beyond the dataset that a spec names.
"""
