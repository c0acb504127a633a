"""Checkpoints that are written in parts, by one process or many, with a manifest that says what lies where.

Each process writes its part of the tensors as blobs; the manifest is JSON. PyTorch's distributed checkpoint
(DCP) plans who writes and who reads what; its storage interface ends in the store. DCP's own metadata is a
pickle, and its collectives send pickles: neither is used. The package must not know when a checkpoint is due,
nor what it counts for.
"""
