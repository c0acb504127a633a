"""Training a recorded run again, and judging whether the same came out.

It stands on what records say and starts processes of its own; it must not know scheduling, and what a trial
is beyond its run's record.
"""
