"""What Halving costs and how fast it answers, measured: ``make bench``, or ``python -m benchmarks
--help``.
"""
