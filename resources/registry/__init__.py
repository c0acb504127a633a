"""Model versions: the gates of a promotion, its transaction, champions, and what retention must keep.

It decides and records; it must not know how a report is drawn, nor Dagster.
"""
