"""The features that a spec names, and where they are: views in the project's folder, values online."""

import os
from pathlib import Path

import yaml

from halving import Store
from halving.errors import InvalidInput
from halving.features.reference import parse_references
from resources.features.view import FeatureView, check_functions, load_views, view_of
from resources.sweep_spec.dataset import DatasetSource
from resources.sweep_spec.yaml_text import read_yaml

FOLDER = "HALVING_FEATURES"
"""The folder of the views' YAML files (default: ``features`` in the working directory)."""

ONLINE = "HALVING_ONLINE"
"""The address of the online store (default: a file of SQLite's in the store, where that is a folder)."""


def project_views() -> dict[str, FeatureView]:
    """The views of this project, by ``clicks@1``.

    Raises:
        InvalidInput: one is wrong, or two are the same version.
    """
    return load_views(os.environ.get(FOLDER) or "features")


def project_view(key: str) -> FeatureView:
    """One view of this project.

    Raises:
        InvalidInput: there is no such view; the message names those that there are.
    """
    views = project_views()
    if key not in views:
        folder = Path(os.environ.get(FOLDER) or "features").absolute()
        raise InvalidInput(
            f"feature view {key!r} is not accepted: {folder} has {', '.join(sorted(views)) or 'none'}"
        )
    return views[key]


def views_of(source: DatasetSource) -> dict[str, FeatureView]:
    """The views of the features that a spec names, by ``clicks@1``; their functions are imported.

    Raises:
        InvalidInput: there is no such view, feature or function; the message names what there is.
    """
    if source.features is None:
        return {}
    views = project_views()
    wanted = {}
    for reference in parse_references(source.features, [source.target]):
        wanted[reference.key] = view_of(reference, views)
    for view in wanted.values():
        check_functions(view)
    return wanted


def joined_views(folder: Path) -> list[str]:
    """The views, by ``clicks@1``, whose features the specs in a folder name.

    A spec that cannot be read names none; its launch says why.
    """
    keys = set()
    for path in sorted(folder.glob("*.yaml")):
        try:
            spec = read_yaml(path.read_bytes())
            match spec:
                case {"dataset": {"features": list(features)}}:
                    keys |= {reference.key for reference in parse_references(features)}
        except (OSError, ValueError, yaml.YAMLError):  # InvalidInput is a ValueError
            continue
    return sorted(keys)


def online_address(store: Store) -> str:
    """The address of the online store.

    Raises:
        InvalidInput: it is not set, and the store is not a folder that could hold the online store.
    """
    if address := os.environ.get(ONLINE):
        return address
    if store.folder is None:
        raise InvalidInput(
            f"{ONLINE} is not set, and the store {store.root} is no folder that could hold the online store: "
            "set it to redis://HOST:PORT/NUMBER, or to the path of a file"
        )
    return str(store.folder / "features" / "online.db")
