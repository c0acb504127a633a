"""What importing the SDK adds to a process."""

import subprocess
import sys
import time

from benchmarks.machine import CHECKOUT, Setting
from benchmarks.results import Part, Table, Target, spread

_TEXT = """
`python -c "import halving; halving.init"` in a new process (a name is loaded with its first use), in turn
with an empty program; the import is the difference of the two. The files are in the page cache.
"""


def measure(setting: Setting) -> Part:
    """The time of an import, and of a process that does nothing else."""
    empty = []
    whole = []
    for _ in range(setting.choose(2, 30)):
        empty.append(_seconds("pass"))
        whole.append(_seconds("import halving; halving.init"))
    part = Part("startup", "Importing", _TEXT)
    imports = [each - nothing for each, nothing in zip(whole, empty, strict=True)]
    part.targets.append(Target("`import halving`", "s", imports, 0.15))
    header = ["runs", "empty program, s", "with `import halving`, s", "the import, s"]
    part.tables.append(Table(header, [[str(len(whole)), spread(empty), spread(whole), spread(imports)]]))
    return part


def _seconds(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, check=True)
    return time.perf_counter() - began
