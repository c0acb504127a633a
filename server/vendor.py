"""``make vendor``: copy the page's libraries from npm into ``static/vendor``.

The files must have the hashes in its ``vendor.json``.

Versions are pinned in ``package.json`` and npm checks each package against ``package-lock.json``. To take a
newer one: change ``package.json``, run ``npm install`` in this folder, then ``make vendor``; the new hashes
are written with the new version.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
VENDOR = HERE / "static" / "vendor"
MANIFEST = VENDOR / "vendor.json"

FILES = {
    "preact.js": ("preact", "dist/preact.mjs"),
    "preact-hooks.js": ("preact", "hooks/dist/hooks.mjs"),
    "preact.LICENSE": ("preact", "LICENSE"),
    "htm.js": ("htm", "dist/htm.module.js"),
    "htm.LICENSE": ("htm", "LICENSE"),
    "signals.js": ("@preact/signals", "dist/signals.module.js"),
    "signals.LICENSE": ("@preact/signals", "LICENSE"),
    "signals-core.js": ("@preact/signals-core", "dist/signals-core.module.js"),
    "signals-core.LICENSE": ("@preact/signals-core", "LICENSE"),
    "markdown-it.js": ("markdown-it", "dist/browser/markdown-it.esm.min.mjs"),
    "markdown-it.LICENSE": ("markdown-it", "LICENSE"),
    "uplot.js": ("uplot", "dist/uPlot.esm.js"),
    "uplot.css": ("uplot", "dist/uPlot.min.css"),
    "uplot.LICENSE": ("uplot", "LICENSE"),
}
"""The name in ``static/vendor`` → the package and the file in it."""


def vendor() -> None:
    """Copy every file, and write the manifest.

    Raises:
        SystemExit: a file of a version that the manifest has is not the file that the manifest has.
    """
    pinned = {}
    if MANIFEST.exists():
        pinned = json.loads(MANIFEST.read_text())
    manifest = {}
    for name, (package, path) in FILES.items():
        version = json.loads((MODULES / package / "package.json").read_text())["version"]
        source = MODULES / package / path
        entry = {
            "package": package,
            "version": version,
            "file": path,
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        }
        before = pinned.get(name, entry)
        if before["version"] == version and before["sha256"] != entry["sha256"]:
            sys.exit(
                f"{package} {version}: {path} has the hash {entry['sha256']}, and {MANIFEST} has "
                f"{before['sha256']}"
            )
        manifest[name] = entry
    for name, (package, path) in FILES.items():
        shutil.copyfile(MODULES / package / path, VENDOR / name)
    MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    vendor()
