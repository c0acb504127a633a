"""The same work through other trackers: each ``use_NAME.py`` runs in that tracker's own environment and
prints JSON.
"""
