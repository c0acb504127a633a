"""The write-ahead log of a run: its format, the appender that ``log()`` writes with, its directory, and reading its tail.

It keeps records on this machine; it must not know Parquet or the store that the points go to.
"""
