"""What is kept: one policy file, what the catalog protects from it, and what goes by it from the store, to a
colder place or away.

The package knows every room below it. It must not know Dagster, whose own side of the policy is in
``pipelines``.
"""
