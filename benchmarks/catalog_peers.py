"""Peers of the catalog's writes: psycopg alone, and Optuna's storage on the same server."""

import random
from collections.abc import Callable
from typing import Any


def bare(url: str, sweep: str, place: int) -> Callable[[], None]:
    """A prepared ``UPDATE`` of one running trial's lease, in a transaction of its own.

    It shows what the server and the driver cost.
    """
    import psycopg

    connection = psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
    running = connection.execute(
        "SELECT number FROM trials WHERE sweep = %s AND status = 'running' ORDER BY number", (sweep,)
    ).fetchall()
    (number,) = running[place % len(running)]

    def write() -> None:
        connection.execute(
            "UPDATE trials SET lease_until = lease_until - 0.001 WHERE sweep = %s AND number = %s",
            (sweep, number),
            prepare=True,
        )

    return write


def optuna(
    url: str, study: dict[str, Any], place: int, source: random.Random
) -> tuple[Callable[[], None], Callable[[], str]]:
    """Optuna's smallest write to a running trial, and its ``ask`` and ``tell``."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    loaded = optuna.load_study(
        study_name=study["name"], storage=url, sampler=optuna.samplers.RandomSampler(seed=place)
    )
    trial = study["running"][place]
    storage = optuna.storages.get_storage(url)
    held: list[Any] = []

    def write() -> None:
        storage.set_trial_user_attr(trial, "lease_until", source.random())

    def call() -> str:
        if not held:
            held.append(loaded.ask(_distributions()))
            return "next"
        loaded.tell(held.pop(), source.random())
        return "decision"

    return write, call


def fill(url: str, trials: int, running: int) -> dict[str, Any]:
    """Make a study with so many trials, the last of them running; return its name and their ids.

    In a process of its own.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(study_name="bench", storage=url)
    source = random.Random(0)
    distributions = _distributions()
    for _ in range(trials - running):
        params = {name: source.random() for name in distributions}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=source.random())
        )
    return {"name": "bench", "running": [study.ask(distributions)._trial_id for _ in range(running)]}


def _distributions() -> dict[str, Any]:
    from optuna.distributions import FloatDistribution

    return {f"x{place}": FloatDistribution(0.0, 1.0) for place in range(8)}
