"""Experiments and runs that clients track over HTTP; an experiment is a project.

The store has the truth: a change of a run is written there first, within the transaction of the catalog that
locks the run's row, and is answered after the commit. This package must not know the clients' protocol.
"""
