"""A user's :class:`Run`: opening it, the epoch loop, system metrics, signals, and a trained run for
predictors.

It joins the rooms below for training code; it must not know which platform or database runs a trial.
"""
