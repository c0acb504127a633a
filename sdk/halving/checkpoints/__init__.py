"""State in and out: serialization, the random generators, the checkpoint interval, and the saver.

The package saves the state that it is given; it must not know metric points or how a trial is scheduled.
"""
