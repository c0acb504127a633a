"""Model versions: the gates before promotion, the transaction of a promotion, and champions.

It decides and records; it must know neither how a report is drawn nor Dagster.
"""
