"""Retention: the policy file, what is protected from it, and what is deleted or moved to a colder place.

The package knows every room below it. It must not know Dagster, whose own side of the policy is in
``pipelines``.
"""
