"""The main functions of a trial's process and of a trial's pod.

They run one attempt and report how it ended. They must not know scheduling, and in a pod they have no
credential but the store's.
"""
