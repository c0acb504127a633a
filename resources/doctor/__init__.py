"""What may be wrong with the catalog, with what it and the store say of each other, and with the cluster:
``halving doctor``.

The package must not know Dagster: what its daemon does, :mod:`pipelines.doctor` looks at.
"""
