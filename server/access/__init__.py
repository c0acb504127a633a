"""The checks before every request, and the record of every write.

It stands on :mod:`server.identity`, which says who asks, and on the server's state; it must not know what a
route does.
"""
