"""What clients track over HTTP: experiments, which are projects, and runs that change while they are known.

The store stays the truth: a change of a run is written there first, in the catalog's transaction that holds
the run's row, and is answered when that has ended. It must not know in which protocol it was asked.
"""
