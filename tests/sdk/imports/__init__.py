"""The ``halving import`` command, on what the tools themselves have written."""
