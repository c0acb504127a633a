"""Model versions: the gates before promotion, the transaction of a promotion, champions, and retention with what it must keep.

It decides, records, and has what is expired deleted; it must know neither how a report is drawn nor Dagster.
"""
