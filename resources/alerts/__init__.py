"""Alerts: what has happened that a person should hear of, and how it reaches them.

An alert is raised in the transaction of what it tells of, and is delivered from there by whichever process
comes first. This room knows channels and messages; it must not know when something is worth an alert.
"""
