"""What runs store besides numbers: which media there are, and bytes given so that nothing in them can act.

It knows records and blobs, and not HTTP's routes.
"""
