"""A trial's name: the key of its partition and the id of its run."""


def trial_key(sweep: str, trial: int) -> str:
    """A trial's name everywhere: its run id and its partition, ``digits-7f3a.0007``."""
    return f"{sweep}.{trial:04d}"


def parse_trial_key(key: str) -> tuple[str, int]:
    """The sweep and the number in a trial's name."""
    sweep, _, number = key.rpartition(".")
    return sweep, int(number)
