"""Whose turn it is: projects, what each may use, and which sweep gets the next free place.

It knows rows of projects and how much of the machines every sweep holds; it must not know what a trial is,
how one is started, or Dagster.
"""
