"""HTML that a run logs: a page of its own, shown in a sandbox that reaches nothing."""

from pathlib import Path

from halving.errors import InvalidInput
from halving.ingest.media import Media
from halving.ingest.media_files import read_medium

_MAX_BYTES = 64 << 20


class Html(Media):
    """A page or a piece of HTML, stored as UTF-8.

    The page of runs shows it in a sandbox: its scripts run, but load nothing and reach neither the server nor
    the page around them.

    Args:
        data: the HTML as a string, or a ``pathlib.Path`` of a file that has it, in UTF-8; or its bytes.
        caption: a line to show beside it.

    Raises:
        InvalidInput: none of these, not UTF-8, or larger than 64 MiB.
    """

    kind = "html"
    media_type = "text/html"
    suffix = ".html"

    def __init__(self, data: str | Path | bytes, *, caption: str | None = None) -> None:
        if isinstance(data, str):
            named = f"html text {data!r:.60}"
            try:
                encoded = data.encode()
            except UnicodeEncodeError:
                raise InvalidInput(
                    f"{named} is not accepted: it has no UTF-8 form (half a surrogate pair)"
                ) from None
        elif isinstance(data, (Path, bytes, bytearray)):
            encoded, named = read_medium(self.kind, data, "an HTML file")
        else:
            raise InvalidInput(
                f"html {data!r:.80} of type {type(data).__qualname__} is not accepted: give a string of "
                "HTML, a pathlib.Path, or bytes"
            )
        if len(encoded) > _MAX_BYTES:
            raise InvalidInput(f"{named} is not accepted: give at most {_MAX_BYTES >> 20} MiB of HTML")
        try:
            length = len(encoded.decode())
        except UnicodeDecodeError:
            raise InvalidInput(f"{named} is not accepted: give HTML in UTF-8") from None
        super().__init__(encoded, {"length": length}, caption)
