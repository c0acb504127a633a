"""The server: the API, live streams, and the page that people look at.

It stands on ``resources`` and the SDK; nothing imports it.
"""
