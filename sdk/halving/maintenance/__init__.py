"""Rewriting old metric files, and deleting blobs and files that nothing names.

It sorts points, makes rollups, compacts segments and applies retention. It changes how points are kept, never
their values. Of runs in progress it must know only the files that they have published.
"""
