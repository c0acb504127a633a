"""Upkeep at scale: compaction by many workers at once, and copies of everything that a machine's end does not
end.

It knows the store, the catalog's tables and the index of runs. It must not know what a decision or a version
means.
"""
