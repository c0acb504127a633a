"""The same work through other trackers.

Each ``use_NAME.py`` runs in that tracker's own environment and prints JSON.
"""
