"""The application's commands: what `halving` can do with a catalog, a module for each noun.

They must not know the server. Of the code location they use what it has of Dagster's own files; jobs run in a
process of Dagster.
"""
