"""Upkeep: compaction by many workers at once, and backups that survive the loss of a machine.

It knows the store, the catalog's tables and the index of runs. It must not know what a decision or a version
means.
"""
