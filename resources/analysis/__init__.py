"""Read models of a sweep: its summary, timeline, trial histories, curves, and replays of other strategies.

It only reads the catalog and the store; it must not know how its results are shown.
"""
