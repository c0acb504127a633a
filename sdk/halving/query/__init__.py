"""Reading runs and curves: the API of notebooks, the curve reader, and SQL.

It only reads; it must not know how training code logs, nor the catalog.
"""
