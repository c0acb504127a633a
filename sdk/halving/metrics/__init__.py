"""Metric points as Parquet files: segments, manifests, downsampling, and their reader.

It knows files and columns; it must not know where points come from, nor when files are rewritten.
"""
