"""The search as pure functions: state, rules, decisions, suggestions, simulation, replay and audit.

Events come in and decisions go out. It must not know a database, a clock, a process or Dagster.
"""
