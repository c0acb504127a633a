"""Rewriting old metric files, and deleting blobs and files that nothing names.

It sorts points, makes rollups, compacts segments and applies retention. It changes how points are kept, never
what they say; of runs in progress it must know nothing but the files that they publish.
"""
