"""What the assets stand on: sweep specs, catalog, search, datasets, scheduling, execution, analysis,
evaluation and registry.
"""
