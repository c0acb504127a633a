"""Rewriting old metric files: sorting, rollups, compaction, retention and orphan files.

It changes how points are kept, never what they say; it must not know runs in progress beyond the files that they publish.
"""
