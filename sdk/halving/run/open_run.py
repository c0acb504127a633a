"""What a program says of the run that it has open, without having it at hand."""

from halving.errors import InvalidInput
from halving.run.signals import newest_open_run


def alert(title: str, text: str = "", level: str = "info", *, wait_seconds: float = 60.0) -> bool:
    """Record an alert of the run that this process has opened last; see :meth:`halving.Run.alert`.

    Returns:
        Whether it is recorded.

    Raises:
        InvalidInput: no run is open.
    """
    run = newest_open_run()
    if run is None:
        raise InvalidInput("alert is not accepted: no run is open; call halving.init() before")
    return bool(run.alert(title, text, level, wait_seconds=wait_seconds))
