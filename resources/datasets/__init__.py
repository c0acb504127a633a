"""Dataset snapshots: rows of a source dealt into splits, cut into shards, published by content, and checked;
DVC tracks their manifests.

It knows the store, the catalog and the features that labels are joined with; it must not know sweeps beyond
the dataset that a spec names.
"""
