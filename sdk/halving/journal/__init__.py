"""The journal: a run's write-ahead log, with its format, its files, its appender and its readers.

It keeps records on this machine; it must not know Parquet or where the points go.
"""
