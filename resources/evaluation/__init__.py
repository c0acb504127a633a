"""How good a checkpoint is: its scores on held-out data, the report, its page and its figures.

It must not know whether that is good enough, which the registry decides.
"""
