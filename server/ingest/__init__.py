"""Taking runs from clients without the store's credentials: their batches of points, their records and their
files.
"""
