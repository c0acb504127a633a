"""Curves for the page and for Python: the question and its limits, the answer's bytes in each encoding, and
what is kept of them.

It knows the SDK's queries, and not HTTP.
"""
