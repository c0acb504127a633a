"""The write-ahead log of a run: its format, its files, the appender that ``log()`` writes with, and reading
what the store lacks.

It keeps records on this machine; it must not know Parquet or where the points go.
"""
