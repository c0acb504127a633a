"""Taking runs from clients without the store's credentials.

They send batches of points, records and files.
"""
