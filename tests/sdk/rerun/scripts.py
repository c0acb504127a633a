"""Scripts that are trained again."""

SCRIPT = """
import os, random, sys
import numpy
import halving
from model import RATE

with halving.init("p", {"lr": float(sys.argv[1])}, id=sys.argv[2], seed=3, system_metrics=None) as run:
    w = numpy.zeros(4)
    for epoch in run.epochs(3):
        w += run.params["lr"] * RATE * numpy.random.rand(4)
        run.log({"loss": float(w.sum()), "noise": random.random()}, step=epoch)
        run.save(w=w)
    print("trained")
"""
