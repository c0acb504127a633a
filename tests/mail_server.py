"""A mail server on this machine, without TLS, which keeps the mails that it takes."""

import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class MailServer:
    """What a mail server has got.

    Attributes:
        mails: the text of each, as it came.
        refused: mailboxes that it does not accept.
        drips: whether it sends its greeting byte by byte, and never to an end.
    """

    port: int = 0
    mails: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    drips: bool = False

    def answer(self, command: str) -> str:
        """The answer to a command, but for that of DATA."""
        verb = command[:4].upper()
        if verb == "RCPT" and any(mailbox in command for mailbox in self.refused):
            return "550 no such mailbox"
        return {"QUIT": "221 bye", "DATA": "354 go on"}.get(verb, "250 fine")


@contextmanager
def running_mail_server() -> Iterator[MailServer]:
    mail_server = MailServer()
    is_over = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while mail_server.drips and not is_over.is_set():
                self.wfile.write(b"2")
                time.sleep(0.05)
            self._say("220 mail.example.com")
            while line := self.rfile.readline().decode().strip():
                self._say(mail_server.answer(line))
                if line == "data":
                    mail_server.mails.append(self._read_mail())
                    self._say("250 taken")
                if line.lower() == "quit":
                    return

        def _read_mail(self) -> str:
            lines = []
            while (line := self.rfile.readline().decode()) != ".\r\n":
                lines.append(line)
            return "".join(lines)

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that has gone is no error."""

    server = Server(("127.0.0.1", 0), Handler)
    mail_server.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield mail_server
    finally:
        is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()
