"""Attempts at trials: the worker, the loop of an attempt, local processes and Kubernetes pods.

It asks the scheduler for work and reports results; it must not know how decisions are made, nor Dagster.
"""
