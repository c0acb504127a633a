"""Saving and restoring state: serialization, random generators, the checkpoint interval, and the savers.

The package saves the state that it is given; it must not know metric points or how a trial is scheduled.
"""
