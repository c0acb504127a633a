"""The Dagster code location: definitions, jobs, sensors and schedules, and the application's commands."""
