"""Statistics of comparisons on a finite test split: bootstrap, exact and score tests, and verdicts.

These are pure functions of arrays and seeds, which know nothing of reports, specs, the store or the catalog.
"""
