"""Why an attempt ended, as one line of the text that its worker recorded."""

import re

_BEGINS = re.compile(r"^(?P<whose>.*?)(\s*\+ Exception Group )?Traceback \(most recent call last\):$")
_GROUP_BEGINS = re.compile(r"^(?P<whose>.*?)\s*\+ Exception Group Traceback \(most recent call last\):$")
_OF_GROUP = re.compile(r"^\s*\| (?P<message>\S.*)$")

_NOTE = re.compile(r"^rank \d+ ran out of memory\b")


def short_reason(error: str | None) -> str | None:
    """The line of an error's text that says what happened; None without a text.

    Of a traceback it is the line of the exception that was raised last, after its rank or node
    (``rank 1: ``). Notes below it, such as PyTorch's table of a GPU's memory, are left out, except for our
    own note on which rank ran out of memory. Of any other text it is the last line, which comes after the
    stacks of all ranks, or after what an image printed.
    """
    lines = (error or "").strip().splitlines()
    if not lines:
        return None
    if group := _reason_of_group(lines):
        return group
    begins = {place: begin["whose"] for place, line in enumerate(lines) if (begin := _BEGINS.match(line))}
    if not begins:
        return lines[-1]
    whose = next(iter(begins.values()))  # in a chain of exceptions only the first has it
    messages = [line for line in lines[max(begins) + 1 :] if line.strip() and not line[0].isspace()]
    if not messages:
        messages = [lines[-1].strip()]
    note = next((line for line in messages[1:] if _NOTE.match(line)), None)
    return note or f"{whose}{messages[0]}"


def _reason_of_group(lines: list[str]) -> str | None:
    """The line of an exception group, after its rank or node.

    None if there is no group, or another exception was raised because of it.
    """
    begins = [place for place, line in enumerate(lines) if _GROUP_BEGINS.match(line)]
    if not begins or "Traceback (most recent call last):" in lines[begins[-1] :]:
        return None
    matches = map(_OF_GROUP.match, lines[begins[0] :])
    message = next((match["message"] for match in matches if match), "")
    whose = _GROUP_BEGINS.sub(r"\g<whose>", lines[begins[0]])
    return f"{whose} {message}".strip()
