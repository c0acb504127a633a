"""What the assets stand on: sweep specs, catalog, search, datasets, execution, evaluation and registry."""
