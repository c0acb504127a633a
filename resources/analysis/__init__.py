"""Read models of a sweep: its summary, timeline, trial histories and curves, and replays of other strategies.

It only reads the catalog and the store, and must not know how its results are shown.
"""
