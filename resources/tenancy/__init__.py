"""Projects: what each may use, and which sweep gets the next free place.

It knows the rows of projects and how much of the machines every sweep holds. It must not know what a trial
is, how one is started, or Dagster.
"""
