"""The main functions of a trial's process and of a trial's pod.

They run one attempt and say how it ended; they must not know scheduling, and pods have no credential but the store's.
"""
