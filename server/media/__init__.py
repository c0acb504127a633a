"""Media of runs, and bytes sent so that nothing in them can act.

It knows records and blobs, and not HTTP's routes.
"""
