"""Files as MLflow writes them, for tests without MLflow."""

from pathlib import Path


def write_folder(top: Path) -> None:
    """A folder as MLflow writes it: an experiment with two runs, and one with one."""
    for experiment, runs in (("1", "ab"), ("2", "c")):
        for run in runs:
            folder = top / experiment / run
            for part in ("metrics", "params", "tags", "artifacts"):
                (folder / part).mkdir(parents=True)
            (folder / "meta.yaml").write_text(
                f"end_time: 1700000009000\nlifecycle_stage: active\nrun_id: {run}\nstart_time: "
                "1700000000000\nstatus: 3\nuser_id: me\n"
            )
            (folder / "params" / "lr").write_text("0.1")
            (folder / "metrics" / "loss").write_text("1700000001000 0.5 1\n")
            (folder / "artifacts" / "a.txt").write_text("hello")
        (top / experiment / "meta.yaml").write_text(
            f"experiment_id: '{experiment}'\nlifecycle_stage: active\nname: of {experiment}\n"
        )
