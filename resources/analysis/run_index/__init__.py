"""The index of runs: what the store's records and curves say of each run, in tables that are filtered and
ordered fast.

It is made from the store alone and can be made again at any time. It must not know who asks, and nothing but
it writes those tables.
"""

from resources.analysis.run_index.refresh import Refreshed, Refresher
from resources.analysis.run_index.select import RunPage, select_names, select_page

__all__ = ["Refreshed", "Refresher", "RunPage", "select_names", "select_page"]
