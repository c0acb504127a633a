"""Ports of this machine for the tests' own servers."""

import errno
import random
import socket

# Neither Linux nor Kubernetes hands these out by itself: a server that is stopped and started again finds its
# port still free.
_PORTS = range(20_000, 30_000)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on."""
    while True:
        with socket.socket() as probe:
            port = random.SystemRandom().choice(_PORTS)
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            return port
