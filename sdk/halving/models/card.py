"""The model card in Markdown, made of a report: what a version is, how it was judged, where it comes from."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from halving.models.manifest import Manifest

_MAX_COLUMNS = 40
_YES_OR_NO = {True: "yes", False: "no"}


def model_card(
    manifest: Manifest,
    report: Mapping[str, Any],
    name: str,
    gates: Sequence[Mapping[str, Any]],
    compared: int | str,
) -> str:
    """Write the card of a model.

    The form follows Mitchell et al., *Model Cards for Model Reporting* (FAT* 2019), as far as a report knows.

    Args:
        report: the data of the evaluation report (``metrics``, ``split``, ``snapshot``, ``champion``,
            ``per_class``).
        gates: ``name``, ``passed`` and ``reason``.
        compared: the number of test rows that the exported model answers as it did when it was judged, or why
            they were not compared.
    """
    sections = [
        f"# {name}",
        _details(manifest, report),
        _section("Metrics", [*_metrics(manifest, report), *_classes(report)]),
        _section("Gates", _gates(gates)),
        _section("Inputs and outputs", _schemas(manifest)),
        _section("Hyperparameters", _table(("name", "value"), manifest.params.items())),
        _section("Use", _use(compared)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _details(manifest: Manifest, report: Mapping[str, Any]) -> str:
    run = f"run {manifest.run}"
    if report.get("sweep"):
        run += f", the winner of sweep {report['sweep']}"
    judged = f"report {manifest.report}"
    if report.get("created"):
        judged = f"{report['created']}, {judged}"
    facts = {
        "model": manifest.model,
        "trained by": run,
        "framework": f"{manifest.framework}, Python {manifest.python}",
        "data": f"dataset {manifest.dataset}, snapshot {manifest.snapshot}" + _rows(report),
        "judged": judged,
        "checkpoint": manifest.checkpoint,
    }
    if manifest.features:
        facts["features"] = ", ".join(manifest.features)
    return "\n".join(_table(("", ""), facts.items()))


def _rows(report: Mapping[str, Any]) -> str:
    splits = report.get("snapshot", {}).get("splits")
    if not splits:
        return ""
    counts = ", ".join(f"{name}: {rows} rows" for name, rows in splits.items())
    return f" ({counts})"


def _gates(gates: Sequence[Mapping[str, Any]]) -> list[str]:
    if not gates:
        return []
    rows = [(gate["name"], _verdict(gate), gate["reason"]) for gate in gates]
    return _table(("gate", "verdict", "why"), rows)


def _metrics(manifest: Manifest, report: Mapping[str, Any]) -> list[str]:
    champion = report.get("champion") or {}
    theirs = champion.get("metrics") or {}
    columns = ["metric", f"on the {report.get('split', 'test')} split"]
    rows = [[name, _number(value)] for name, value in sorted(manifest.metrics.items())]
    if theirs:
        columns.append(f"champion {champion['version']}, same rows")
        for row in rows:
            row.append(_number(theirs.get(row[0])))
    return _table(columns, rows)


def _classes(report: Mapping[str, Any]) -> list[str]:
    per_class = report.get("per_class") or []
    if not per_class:
        return []
    names = sorted(per_class[0], key=lambda name: (name != "label", name))
    return ["", *_table(names, [[_number(row[name]) for name in names] for row in per_class])]


def _schemas(manifest: Manifest) -> list[str]:
    columns = list(manifest.input_schema.items())
    lines = _table(
        ("column", "type", "nulls"),
        [(name, kind, _YES_OR_NO[name not in manifest.complete]) for name, kind in columns[:_MAX_COLUMNS]],
    )
    if len(columns) > _MAX_COLUMNS:
        lines.append(f"\n…and {len(columns) - _MAX_COLUMNS} more; model.json has them all.")
    classes = manifest.output_schema.get("classes")
    answer = f"One {manifest.output_schema.get('type', 'value')} a row"
    if classes:
        answer += f", one of {', '.join(map(str, classes))}"
    return [*lines, "", f"{answer}."]


def _use(compared: int | str) -> list[str]:
    if isinstance(compared, int):
        comparison = (
            f"From this folder alone it answers {compared} rows of the test split as it did when it was "
            "judged."
        )
    else:
        comparison = (
            f"Its answers from this folder were not compared with those that were judged: {compared}."
        )
    return [
        "```python",
        "# pip install -r requirements.txt; in a process of its own",
        'import sys; sys.path.insert(0, "code")',
        "import halving",
        'halving.load_model(".").predict({"COLUMN": […]})  # a table, a data frame or a dict of columns',
        "```",
        "",
        (
            'or `mlflow.pyfunc.load_model(".")`. `input_example.json` has columns to try, `predictions.json` '
            "what it answers to them."
        ),
        comparison,
        (
            "The weights are safetensors; nothing here is unpickled. It answers for data like that on "
            "which it was judged, and for no other."
        ),
    ]


def _verdict(gate: Mapping[str, Any]) -> str:
    verdict = "pass" if gate["passed"] else "fail"
    return str(gate.get("outcome") or verdict).replace("_", " ")


def _section(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return "\n".join([f"## {title}", "", *lines])


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    body = [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *body]


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _number(value: Any) -> str:
    if value is None or value != value:
        return "not finite"
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)
