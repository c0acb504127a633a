"""Model versions: the gates before promotion, the transaction of a promotion, champions, and what retention must keep.

It decides and records; it must know neither how a report is drawn nor Dagster.
"""
