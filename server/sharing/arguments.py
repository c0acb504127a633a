"""The arguments of ``halving share``; the command itself is imported when it runs."""

import argparse


def add_share_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of :func:`server.sharing.command.run_share`."""
    parser.add_argument(
        "view",
        metavar="VIEW",
        help=(
            "a filter in quotes, such as 'project = digits order by metrics.loss limit 20' (docs/filter.md); "
            "a run; a sweep's id; view:PROJECT/NAME of a saved view; or the "
            "address of the Compare page, a run or a sweep, in quotes"
        ),
    )
    parser.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        default="page.html",
        help="default: page.html; - is the standard output",
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    parser.add_argument(
        "--metrics",
        "-m",
        metavar="KEYS",
        help="the curves, A,B,C (default: those of the view, else the ten that most of the runs have)",
    )
    parser.add_argument("--title", metavar="TEXT", default="", help="the page's heading")
    parser.add_argument(
        "--by", metavar="NAME", help="who made it, as the page says (default: your login name)"
    )
