"""Files that are written once and never changed, on a disk or an object store.

With it come retries, conditional create and JSON. It knows names and bytes; it must not know what a run, a
metric or a trial is.
"""
