"""Live streams: what runs log while people watch.

A run is read once for all of its viewers, and only what is new.

It knows the SDK's follower of a run and gives events; it knows nothing of HTTP.
"""
