"""Imports that the processes of every gang need, beside those of :mod:`halving.trial_process.preload`."""

import contextlib

with contextlib.suppress(ImportError):
    import torch.distributed.elastic.agent.server.local_elastic_agent
    import torch.distributed.elastic.rendezvous.static_tcp_rendezvous  # noqa: F401

    import halving.checkpoints.sharded.reader
    import halving.checkpoints.sharded.writer  # noqa: F401
