"""Curves for the page and for Python.

The question and its limits, the answer's bytes in each encoding, and the caches of both.

It knows the SDK's queries, and not HTTP.
"""
