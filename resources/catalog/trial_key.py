"""A trial's key: the name of its partition and the id of its run."""


def trial_key(sweep: str, trial: int) -> str:
    """The key of a sweep's trial by its number, ``digits-7f3a.0007``."""
    return f"{sweep}.{trial:04d}"


def parse_trial_key(key: str) -> tuple[str, int]:
    """The sweep and the number in a trial's key."""
    sweep, _, number = key.rpartition(".")
    return sweep, int(number)
