"""The digits example by ``run.distribute`` with sharded checkpoints, written beside training."""

import torch
from torch.nn import functional

from examples import digits
from halving import Run
from halving.checkpoints import large_model


def train(run: Run) -> None:
    """As :func:`examples.digits.train`."""
    large_model.MIN_BYTES = 0
    model, optimizer = digits.build(run.params)
    training = run.distribute(model, optimizer)
    inputs, labels = digits.tensors(run.dataset.read("train"))
    validation_inputs, validation_labels = digits.tensors(run.dataset.read("validation"))
    run.restore(model=model, optimizer=optimizer, training=training)
    for _ in run.epochs():
        for batch in digits.batches(inputs, labels, int(run.params["batch_size"])):
            training.step(lambda module, rows, digit: functional.cross_entropy(module(rows), digit), *batch)
        with torch.no_grad():
            outputs = model(validation_inputs)
        run.report(val_accuracy=(outputs.argmax(1) == validation_labels).float().mean().item())
        run.save(model=model, optimizer=optimizer, training=training)
