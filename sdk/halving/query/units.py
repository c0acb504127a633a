"""Numbers with units, for people."""


def count_of(count: int, noun: str) -> str:
    """A count with its noun, such as ``1 step`` and ``2 steps``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """A number of bytes for people: ``12 B``, ``3.4 KiB``, ``5.6 MiB`` and so on."""
    if count < 1024:
        return f"{count:.0f} B"
    number = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024:
            return f"{number:.1f} {unit}"
    return f"{number / 1024:.1f} TiB"
