"""Numbers with units, for people."""


def counted(count: int, noun: str) -> str:
    """So many of something, as ``1 step`` and ``2 steps``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Bytes as ``12 B``, ``3.4 KiB``, ``5.6 MiB``…"""
    number = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
