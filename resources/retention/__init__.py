"""Retention: the policy, the data that it protects, and what it deletes or moves to a colder place.

The package knows every room below it. It must not know Dagster, whose own side of the policy is in
``pipelines``.
"""
