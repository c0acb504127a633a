"""Measurements of what Halving costs and how fast it answers: ``make bench``.

``python -m benchmarks --help`` lists the parts.
"""
