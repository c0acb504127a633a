"""Checkpoints of many processes: each writes its part of the tensors as blobs, and one manifest, in JSON,
says what lies where.

PyTorch's distributed checkpoint (DCP) plans who writes and who reads what; its storage interface ends in the
store. DCP's own metadata is a pickle, and its collectives send pickles: neither is used. The package must not
know when a checkpoint is due, nor what it counts for.
"""
