"""The index of runs: what the store's records and curves say of each run, in tables made for fast queries.

It is built from the store alone and can be rebuilt at any time. It knows nothing of those who ask it, and
nothing else writes those tables.
"""

from resources.analysis.run_index.refresh import Refreshed, Refresher
from resources.analysis.run_index.select import RunPage, select_names, select_page

__all__ = ["Refreshed", "Refresher", "RunPage", "select_names", "select_page"]
