"""``wandb.config``: a run's hyperparameters, which may grow and, if allowed, change while it trains."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from halving.wandb.errors import ConfigError, UsageError
from halving.wandb.errors.term import termwarn

DEFAULTS_FILE = "config-defaults.yaml"


class Config:
    """Names and values, by item and by attribute: ``config["lr"]`` and ``config.lr``.

    A value that is there changes only with ``allow_val_change``.
    """

    def __init__(self) -> None:
        own = vars(self)
        own["_items"] = {}
        own["_locked"] = {}
        own["_on_change"] = None
        own["_allow_val_change"] = False

    def __repr__(self) -> str:
        return str(dict(self))

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._set({key: value}, None)

    def __getattr__(self, key: str) -> Any:
        try:
            return vars(self)["_items"][key]
        except KeyError:
            raise AttributeError(f"{type(self)!r} object has no attribute {key!r}") from None

    def __setattr__(self, key: str, value: Any) -> None:
        self._set({key: value}, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def keys(self) -> list[str]:
        """The names, without those that begin with an underscore."""
        return [key for key in self._items if not key.startswith("_")]

    def items(self) -> list[tuple[str, Any]]:
        """The names and values, without those that begin with an underscore."""
        return [(key, value) for key, value in self._items.items() if not key.startswith("_")]

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or ``default``."""
        return self._items.get(key, default)

    def as_dict(self) -> dict[str, Any]:
        """All names and values."""
        return dict(self._items)

    def update(self, d: Any, allow_val_change: bool | None = None) -> None:
        """Add names and values: of a dict, a Namespace, a YAML file's path, or another config object.

        Raises:
            ConfigError: a value would change, and ``allow_val_change`` is not set.
        """
        self._set(parse_config(d), allow_val_change)

    def setdefaults(self, d: Any) -> None:
        """Add the names that are not there."""
        self._set({key: value for key, value in parse_config(d).items() if key not in self._items}, None)

    def update_locked(self, d: Mapping[str, Any], user: str = "", _allow_val_change: bool = True) -> None:
        """Set names that later updates must not change, such as a sweep's."""
        self._set(d, _allow_val_change, locked_by=user)

    def persist(self) -> None:
        """Record the config as it is now, after a change inside of a value."""
        self._changed()

    def _set(
        self, values: Mapping[str, Any], allow_val_change: bool | None, *, locked_by: str | None = None
    ) -> None:
        changes: dict[str, Any] = {}
        for key, value in values.items():
            name = str(key).strip("-")
            if locked_by is None and name in self._locked:
                termwarn(f"Config item '{name}' was locked by '{self._locked[name]}' (ignored update).")
                continue
            converted = _converted(name, value)
            allowed = allow_val_change or (allow_val_change is None and self._allow_val_change)
            if not allowed and name in self._items and _differ(converted, self._items[name]):
                raise ConfigError(
                    f'Attempted to change value of key "{name}" from {self._items[name]} to {converted}\n'
                    "If you really want to do this, pass allow_val_change=True to config.update()"
                )
            changes[name] = converted
        self._items.update(changes)
        if locked_by is not None:
            self._locked.update(dict.fromkeys(changes, locked_by))
        if changes:
            self._changed()

    def _changed(self) -> None:
        on_change: Callable[[], None] | None = vars(self)["_on_change"]
        if on_change is not None:
            on_change()


def parse_config(
    params: Any, exclude: list[str] | None = None, include: list[str] | None = None
) -> dict[str, Any]:
    """Convert what a script has as its config to a dict.

    Args:
        params: a dict, argparse's Namespace, absl's flags, a dataclass, an OmegaConf or another object of
            names and values, or the path of a YAML file.
        exclude, include: names to leave out, or to take alone.

    Raises:
        UsageError: both ``exclude`` and ``include`` are given.
        TypeError: ``params`` has no names.
    """
    from halving.errors import InvalidInput
    from halving.records.config_params import convert_config
    from halving.wandb.current import BeforeInit

    if exclude and include:
        raise UsageError("Expected at most only one of exclude or include")
    if isinstance(params, str):
        params = read_config_file(params)
    if isinstance(params, BeforeInit) or params is None:
        params = {}
    if isinstance(params, Config):
        params = params.as_dict()
    if type(params).__module__ == "absl.flags._flagvalues":
        params = {name: params[name].value for name in dir(params)}
    if not isinstance(params, dict):
        if not isinstance(params, Mapping) and not hasattr(params, "__dict__"):
            raise TypeError("config must be a dict or have a __dict__ attribute.")
        try:
            params = convert_config(params)[0]
        except InvalidInput as error:
            raise TypeError(str(error)) from None
    if include:
        return {key: value for key, value in params.items() if key in include}
    return {key: value for key, value in params.items() if key not in (exclude or ())}


def read_config_file(path: str | Path, *, must_exist: bool = True) -> dict[str, Any]:
    """Read a YAML file of a config, in which a value may be ``{desc: …, value: …}``.

    Raises:
        ConfigError: it is missing, or not of this form.
        ExtraMissing: PyYAML is not installed.
    """
    from halving.errors import ExtraMissing

    if not Path(path).is_file():
        if must_exist:
            raise ConfigError(f"config file {path} doesn't exist")
        return {}
    try:
        import yaml
    except ImportError:
        raise ExtraMissing(f"config file {path} needs PyYAML: `pip install pyyaml`") from None
    try:
        content = yaml.safe_load(Path(path).read_text())
    except yaml.YAMLError as error:
        raise ConfigError(f"Error loading yaml from {path}: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"config file {path} must have names and values, not {type(content).__name__}")
    content.pop("wandb_version", None)
    content.pop("_wandb", None)
    return {
        str(key): value["value"] if isinstance(value, dict) and "value" in value else value
        for key, value in content.items()
    }


def _converted(name: str, value: Any) -> Any:
    """A value as plain data, as the params of a run have it.

    Raises:
        TypeError: it is an image, a table or another object to be logged.
    """
    from halving.records.config_params import recorded_params

    if any(kind.__name__ == "WBValue" for kind in type(value).__mro__):
        raise TypeError("WBValue objects cannot be added to the run config")
    if value is None or type(value) in (bool, int, float, str):
        return value
    return recorded_params({name: value})[name]


def _differ(new: Any, old: Any) -> bool:
    return bool(new != old) and not (new != new and old != old)
