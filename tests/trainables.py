"""Small trainables without torch, for tests: each behaves in one way that a real one might."""

import math
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pyarrow as pa

from halving import Run, TrainedRun


def data() -> pa.Table:
    """90 rows of two classes that a threshold on ``x`` separates."""
    xs = [((row * 37) % 90) / 90 for row in range(90)]
    return pa.table({"x": xs, "label": ["high" if x > 0.5 else "low" for x in xs]})


def many() -> pa.Table:
    """The same with 900 rows, so that slices of its test split are not small."""
    xs = [((row * 371) % 900) / 900 for row in range(900)]
    return pa.table({"x": xs, "label": ["high" if x > 0.5 else "low" for x in xs]})


def customers() -> pa.Table:
    """The same 90 rows, three of each customer."""
    return data().append_column("customer", pa.array([row // 3 for row in range(90)]))


def leaky() -> pa.Table:
    """90 rows in splits of 30, of which 3 of the test split are in train as well."""
    table = data()
    parts = ["train"] * 30 + ["validation"] * 30 + ["test"] * 30
    again = table.slice(0, 3)
    return pa.concat_tables([table.slice(0, 87), again]).append_column("part", pa.array(parts))


def data_raising() -> pa.Table:
    raise KeyError("the file has no such column")


def numbers() -> pa.Table:
    """60 rows with a real number to predict."""
    xs = [row / 60 for row in range(60)]
    return pa.table({"x": xs, "y": [2 * x + 1 for x in xs]})


def train(run: Run) -> None:
    """Learn the threshold: the score rises with epochs, towards a limit that depends on ``x``."""
    state = run.restore(epochs_seen=[])
    epochs_seen = list(state["epochs_seen"])
    for epoch in run.epochs():
        epochs_seen.append(epoch)
        run.log({"train/loss": 1 / epoch}, step=epoch)
        run.report(score=score(run.params["x"], epoch))
        run.save(epochs_seen=epochs_seen)


def score(x: float, epoch: int) -> float:
    return (1 - (x - 0.5) ** 2) * (1 - 0.5**epoch)


def predict(run: TrainedRun, table: pa.Table) -> list[str]:
    """Right for all rows, given a checkpoint of :func:`train`."""
    epochs_seen = run.restore(epochs_seen=None)["epochs_seen"]
    return ["high" if x > 0.5 and epochs_seen else "low" for x in table["x"].to_pylist()]


def predict_badly(run: TrainedRun, table: pa.Table) -> list[str]:
    """Wrong for all rows: of 20 that is enough to tell."""
    return ["low" if x > 0.5 else "high" for x in table["x"].to_pylist()]


def predict_numbers(run: TrainedRun, table: pa.Table) -> list[float]:
    return [2 * x + 1.1 for x in table["x"].to_pylist()]


def predict_nan(run: TrainedRun, table: pa.Table) -> list[float]:
    return [math.nan] * table.num_rows


def predict_too_few(run: TrainedRun, table: pa.Table) -> list[str]:
    return ["low"]


def train_slowly(run: Run) -> None:
    """Train like :func:`train`, but slowly; writes each epoch into ``epochs`` in the store."""
    state = run.restore(epochs_seen=[])
    epochs_seen = list(state["epochs_seen"])
    for epoch in run.epochs():
        with Path(run.store.root, "epochs").open("a") as file:
            file.write(f"{run.id} {epoch} {run.attempt}\n")
        time.sleep(0.2)
        epochs_seen.append(epoch)
        run.log({"train/loss": 1 / epoch}, step=epoch)
        run.report(score=score(run.params["x"], epoch))
        run.save(epochs_seen=epochs_seen)


def train_through_a_long_epoch(run: Run) -> None:
    """Stay in the second epoch of the first attempt until it is to end, and a second more; notes attempts."""
    steps = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        with Path(run.store.root, "epochs").open("a") as file:
            file.write(f"{run.id} {epoch} {run.attempt}\n")
        while (epoch, run.attempt) == (2, 1) and not run.stopping:
            time.sleep(0.01)
        time.sleep(1.0 if run.stopping else 0.0)
        steps.append([epoch, run.attempt])
        run.report(score=0.5)
        run.save(seen=steps)


def train_crashing(run: Run) -> None:
    """The process is killed once, in the second epoch of every trial's first attempt."""
    state = run.restore(epochs_seen=[])
    epochs_seen = list(state["epochs_seen"])
    for epoch in run.epochs():
        if epoch == 2 and run.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        epochs_seen.append(epoch)
        run.report(score=score(run.params["x"], epoch))
        run.save(epochs_seen=epochs_seen)


def train_killed_always(run: Run) -> None:
    for _ in run.epochs():
        os.kill(os.getpid(), signal.SIGKILL)


def train_raising(run: Run) -> None:
    """Half of the trials raise."""
    if run.params["x"] > 0.5:
        raise RuntimeError(f"x = {run.params['x']:.3f} is too much for me")
    train(run)


def train_raising_always(run: Run) -> None:
    raise RuntimeError("no trial of this sweep can work")


def train_diverging(run: Run) -> None:
    """Half of the trials report NaN in their second epoch, after a good first one."""
    state = run.restore(epochs_seen=[])
    epochs_seen = list(state["epochs_seen"])
    for epoch in run.epochs():
        epochs_seen.append(epoch)
        run.save(epochs_seen=epochs_seen)
        run.report(score=math.nan if epoch == 2 and run.params["x"] > 0.5 else score(run.params["x"], epoch))


def train_silently(run: Run) -> None:
    """Never reports the objective."""
    for epoch in run.epochs():
        run.report(accuracy=0.5)
        run.save(epoch=epoch)


def train_without_checkpoint(run: Run) -> None:
    for epoch in run.epochs():
        run.report(score=score(run.params["x"], epoch))


def train_giving_up(run: Run) -> None:
    """Returns after two epochs, whatever was granted."""
    for epoch in run.epochs():
        run.report(score=score(run.params["x"], epoch))
        run.save(epochs_seen=[epoch])
        if epoch == 2:
            return


def train_with_children(run: Run) -> None:
    """Uses processes of its own, as a data loader does."""
    for epoch in run.epochs():
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0,))
        child.start()
        child.join()
        run.report(score=float(child.exitcode == 0))
        run.save(epoch=epoch)


def train_killed_beside_a_child(run: Run) -> None:
    """Dies while a child of its own, which has inherited everything, lives on for a while."""
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(90,)).start()
    os.kill(os.getpid(), signal.SIGKILL)


def train_counting(run: Run) -> None:
    """Keep how many rows the train split has; the second seed of a final training cannot be trained."""
    rows = run.dataset.read("train").num_rows
    loaded = sum(len(batch["x"]) for batch in run.dataset.loader("train", batch_size=16))
    if run.records.read()["parent"].get("final") == 1:
        raise RuntimeError("this seed cannot be trained")
    for epoch in run.epochs():
        run.report(score=score(run.params["x"], epoch))
        run.save(rows=rows, loaded=loaded)


def predict_counted(run: TrainedRun, table: pa.Table) -> list[str]:
    """Predict right for a checkpoint of :func:`train_counting` with the predictor's train split.

    Another split, even by one row, makes it wrong.
    """
    kept = run.restore(rows=0, loaded=0)
    right = (
        kept["rows"] == kept["loaded"] == run.dataset.read("train").num_rows == run.dataset.splits["train"]
    )
    return ["high" if (x > 0.5) is right else "low" for x in table["x"].to_pylist()]
