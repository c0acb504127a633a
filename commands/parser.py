"""All commands of the application.

A command imports what it works with when it runs, so that ``halving --help`` answers at once.
"""

import argparse
from typing import Any

from commands import (
    alerts,
    backup,
    compaction,
    cost,
    datasets,
    features,
    index,
    journal,
    launch,
    leaderboard,
    links,
    mcp,
    models,
    projects,
    replay,
    reruns,
    retention,
    runs,
    sweeps,
    trials,
    views,
)
from commands.journal import note_run as note_run  # The SDK imports all of these from this module.
from commands.runs import change_run as change_run
from commands.runs import tag_run as tag_run
from commands.studies import open_local_studies as open_local_studies


def add_commands(commands: Any) -> None:
    """Add this application's commands to the ``halving`` command."""
    launch.add_sweep_command(commands)
    sweeps.add_sweeps_commands(commands)
    replay.add_replay_command(commands)
    leaderboard.add_leaderboard_command(commands)
    trials.add_trial_command(commands)
    cost.add_cost_command(commands)
    models.add_models_commands(commands)
    projects.add_projects_commands(commands)
    views.add_views_commands(commands)
    links.add_links_commands(commands)
    alerts.add_alerts_commands(commands)
    index.add_index_command(commands)
    journal.add_journal_commands(commands)
    runs.add_runs_commands(commands.choices["runs"].inner)
    datasets.add_datasets_commands(commands)
    features.add_features_commands(commands)
    retention.add_retention_command(commands)
    backup.add_backup_commands(commands)
    mcp.add_mcp_command(commands)
    compaction.add_workers(commands.choices["compact"])
    # These commands of the SDK do more where the application is installed.
    commands.choices["rerun"].set_defaults(run=reruns.run_rerun)
    commands.choices["why"].set_defaults(run=reruns.run_why)
    commands.choices["runs"].set_defaults(run=runs.run_list)
    commands.choices["show"].set_defaults(run=runs.run_details)
    commands.choices["doctor"].set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from commands.doctor import run_doctor

    return run_doctor(arguments)
