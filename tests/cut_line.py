"""A proxy of a Postgres server that counts round trips, and can cut the line after a COMMIT."""

import socket
import threading
from contextlib import suppress

from sqlalchemy import make_url

_BYTES = 65_536


class CutLine:
    """Carries connections on a port of its own to the server of ``url``; :attr:`url` goes over it.

    Attributes:
        cuts: how often it was cut.
        round_trips: how often a client spoke after the server had, on all connections.
    """

    def __init__(self, url: str) -> None:
        server = make_url(url)
        self._server = (str(server.host), int(server.port or 5432))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = str(server.set(host="127.0.0.1", port=self._listening.getsockname()[1]))
        self.cuts = self.round_trips = 0
        self._armed = False
        self._answered = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after_the_next_commit(self) -> None:
        self._armed = True

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(
                    target=self._carry, args=(client, socket.create_connection(self._server)), daemon=True
                ).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        threading.Thread(target=self._answer, args=(client, server), daemon=True).start()
        with suppress(OSError):
            while sent := client.recv(_BYTES):
                self.round_trips += self._answered
                self._answered = False
                if self._armed and b"COMMIT" in sent:
                    self._armed = False
                    self.cuts += 1
                    # the answer arrives no more; whether it came is known from the server's own
                    client.shutdown(socket.SHUT_WR)
                    server.sendall(sent)
                    continue
                server.sendall(sent)
        server.close()

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while said := server.recv(_BYTES):
                self._answered = True
                client.sendall(said)
        client.close()
