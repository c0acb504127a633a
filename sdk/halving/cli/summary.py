"""``halving summary``: what stands out in a run's curves, a line each."""

import argparse

from halving.cli.output import console, print_json, print_table
from halving.errors import NotFound
from halving.query.curve_stats import keys_of
from halving.query.curve_summary import read_summaries
from halving.query.runs import find_run
from halving.store.store import Store
from halving.text import comma_list, did_you_mean


def run_summary(arguments: argparse.Namespace) -> int:
    """Summarize curves of a run: ends, best, trend, plateau, spikes, NaN, gaps and resumes.

    JSON: ``{"run", "curves": {metric: {"text", "points", "first", "last", "minimum", "maximum", "best",
    "direction", "guessed", "slope", "plateau_since", "spike_count", "spikes", "nonfinite",
    "nonfinite_first", "nonfinite_to_end", "step_gap_count", "step_gaps", "time_gap_count", "time_gaps",
    "resume_count", "resumes", "coarse"}}}``. The tool ``curve_summary`` of ``halving mcp`` has the ``text``.

    Raises:
        NotFound: no such run, or it has no such metric.
    """
    store = Store(arguments.root)
    project, run = find_run(store, arguments.run_name)
    names = list(dict.fromkeys(arguments.metrics)) or keys_of(store, project, run)
    summaries = read_summaries(store, project, run, names, arguments.direction)
    for name in names:
        if name not in summaries:
            own = keys_of(store, project, run)
            raise NotFound(
                f"metric {name!r} is not in run {project}/{run}{did_you_mean(name, own)}; "
                f"it has {comma_list(own[:20])}"
            )
    if arguments.json:
        curves = {name: {"text": summary.text(), **summary.as_dict()} for name, summary in summaries.items()}
        print_json({"run": f"{project}/{run}", "curves": curves})
        return 0
    rows = [[name, summary.text()] for name, summary in summaries.items()]
    print_table(console(), ("metric", "summary"), rows, first=True)
    return 0
