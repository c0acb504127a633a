"""Judging winners: scores on held-out data, the report, its page and figures.

It says how good a checkpoint is; it must not know whether that is good enough, which the registry decides.
"""
