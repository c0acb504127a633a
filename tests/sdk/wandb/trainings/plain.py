"""A script of one's own: nested config, several kinds of values, steps, axes, summaries, media."""

import math
import sys

import numpy as np
import wandb

CONFIG = {"lr": 0.1, "opt": {"name": "sgd", "betas": [0.9, 0.99]}, "none": None, "t": (1, 2)}


def train(run: "wandb.Run") -> None:
    run.config.update({"late": 5, "opt": {"name": "adam"}}, allow_val_change=True)
    run.config["set"] = "by name"
    run.config.attribute = 1.5
    run.define_metric("acc", summary="max")
    run.define_metric("valid/*", step_metric="epoch")
    run.define_metric("low", summary="min,mean")
    for step in range(30):
        run.log({"train/loss": 1 / (step + 1), "flag": step % 3 == 0, "np": np.float32(step / 3)})
    for epoch in range(5):
        run.log({"valid/loss": 1.5**-epoch, "epoch": epoch, "acc": math.sin(epoch), "low": (epoch - 2) ** 2})
    run.log({"first": 1}, commit=False)
    run.log({"second": 2}, commit=False)
    run.log({"third": 3, "first": 1.5})
    run.log({"nested": {"a": 1, "b": {"c": 2.5}}, "nan": math.nan, "inf": -math.inf, "big": 2**40})
    run.log({"at": 1}, step=100)
    run.log({"beside": 2}, step=100)
    run.log({"at": 3}, step=200)
    run.log({"too late": 4}, step=150)
    run.log({"text": "some words", "none": None, "after": 1})


def log_media(run: "wandb.Run") -> None:
    noise = np.random.default_rng(0)
    pixels = [noise.integers(0, 255, (8, 9, 3), dtype=np.uint8) for _ in range(4)]
    run.log({"image": wandb.Image(pixels[0], caption="said")}, step=300)
    run.log({"several": [wandb.Image(each, caption=f"c{n}") for n, each in enumerate(pixels)]}, step=301)
    run.log({"histogram": wandb.Histogram(np_histogram=([3, 1, 2], [0.0, 0.5, 1.0, 1.5]))}, step=302)
    run.log({"spread": wandb.Histogram(noise.normal(size=500), num_bins=8)}, step=303)
    table = wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]])
    table.add_data(3, "z")
    run.log({"table": table}, step=304)


def main() -> None:
    resumes = sys.argv[1:] == ["resume"]
    run = wandb.init(
        project="equal",
        id="plain",
        name="a nice name",
        group="g",
        job_type="train",
        notes="two\nlines",
        tags=["first", "second"],
        resume="allow" if resumes else None,
        config=None if resumes else CONFIG,
    )
    if resumes:
        wandb.log({"train/loss": 0.01}, step=1000)
    else:
        train(run)
        log_media(run)
        run.summary["best"] = 0.9
        run.summary.update({"after/all": 3, "nested": {"x": 1}})
        run.summary["train/loss"] = 0.25
    wandb.finish()


if __name__ == "__main__":
    main()
