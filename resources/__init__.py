"""What the assets stand on: catalog, datasets, search, compute, metrics, evaluation, registry."""
