"""Rewriting old metric files (sorting, rollups, compaction, retention), and deleting what nothing names:
blobs and orphan files.

It changes how points are kept, never what they say; it must know of runs in progress nothing but the files
that they publish.
"""
