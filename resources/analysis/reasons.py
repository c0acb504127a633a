"""Why an attempt ended, in one line of the text that its worker has recorded: pure."""

import re

_BEGINS = re.compile(r"^(?P<whose>.*?)(\s*\+ Exception Group )?Traceback \(most recent call last\):$")
_GROUP_BEGINS = re.compile(r"^(?P<whose>.*?)\s*\+ Exception Group Traceback \(most recent call last\):$")
_OF_GROUP = re.compile(r"^\s*\| (?P<said>\S.*)$")

_NOTE = re.compile(r"^rank \d+ ran out of memory\b")


def short_reason(error: str | None) -> str | None:
    """The line that says what happened; None of no text.

    Of a traceback that is the line of the exception that was raised last, behind whose rank or node it was
    (``rank 1: ``). Notes that follow it, such as PyTorch's table of a GPU's memory, are no reason, but for
    ours that says which rank had not enough of it. Any other text says it in its last line: a hang behind the
    stacks of all ranks, an image behind what it printed.
    """
    lines = (error or "").strip().splitlines()
    if not lines:
        return None
    if group := _reason_of_group(lines):
        return group
    begins = {place: begin["whose"] for place, line in enumerate(lines) if (begin := _BEGINS.match(line))}
    if not begins:
        return lines[-1]
    whose = next(iter(begins.values()))  # of a chain of exceptions the first one stands behind it
    said = [line for line in lines[max(begins) + 1 :] if line.strip() and not line[0].isspace()] or [
        lines[-1].strip()
    ]
    noted = next((line for line in said[1:] if _NOTE.match(line)), None)
    return noted or f"{whose}{said[0]}"


def _reason_of_group(lines: list[str]) -> str | None:
    """The line of an exception group, behind whose rank or node it was; None where there is none, or another
    exception came of it.
    """
    begins = [place for place, line in enumerate(lines) if _GROUP_BEGINS.match(line)]
    if not begins or "Traceback (most recent call last):" in lines[begins[-1] :]:
        return None
    said = next((match["said"] for line in lines[begins[0] :] if (match := _OF_GROUP.match(line))), "")
    begin = _GROUP_BEGINS.match(lines[begins[0]])
    return f"{begin['whose'] if begin else ''} {said}".strip()
