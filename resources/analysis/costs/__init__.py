"""What trainings cost: what attempts held, by a list of prices.

The sums are pure; they must not know where rows, sizes or prices come from.
"""
