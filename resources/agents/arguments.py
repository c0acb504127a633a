"""What a tool is asked: flat arguments, their JSON schema, and their check before anything runs."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from halving.errors import InvalidInput
from halving.text import did_you_mean

if TYPE_CHECKING:
    from resources.agents.budget import Reply
    from resources.agents.desk import Desk

Type = Literal["string", "integer", "number", "boolean"]
MAX_TEXT = 100_000
"""Letters of a text argument, such as a spec."""

_UNSTORED = re.compile("[\\0\ud800-\udfff]")  # No database accepts these.
_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True)
class Argument:
    """One argument of a tool.

    Attributes:
        about: what it means, for the agent; empty where its name says all.
        choices: the only values, if there are few.
        default: its value where it is left out; None: it is needed.
        low, high: bounds of a number.
    """

    name: str
    type: Type = "string"
    about: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 2**53

    def schema(self) -> dict[str, Any]:
        """Its JSON schema, as short as it can be: bounds are checked here and said in errors."""
        schema: dict[str, Any] = {"type": self.type}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.about:
            schema["description"] = self.about
        return schema

    def check(self, value: Any) -> Any:
        """Return the value if it is accepted.

        Raises:
            InvalidInput: with the argument and the value.
        """
        accepted = isinstance(value, _PYTHON[self.type]) and isinstance(value, bool) == (
            self.type == "boolean"
        )
        if not accepted:
            raise InvalidInput(f"{self.name} = {value!r:.80} is not accepted: give a {self.type}")
        if self.type == "string" and (
            "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)
        ):
            raise InvalidInput(f"{self.name} is not accepted: it has a NUL or half a character; give UTF-8")
        if self.type == "string" and len(value) > MAX_TEXT:
            raise InvalidInput(f"{self.name} has {len(value)} letters, and at most {MAX_TEXT} are accepted")
        if self.choices and value not in self.choices:
            raise InvalidInput(f"{self.name} = {value!r:.80} is not accepted: give {', '.join(self.choices)}")
        if self.type == "integer" and not self.low <= value <= self.high:
            raise InvalidInput(f"{self.name} = {value} is not accepted: give {self.low} to {self.high}")
        return value


@dataclass(frozen=True)
class Tool:
    """One tool.

    Attributes:
        effect: ``reads`` changes nothing; ``may write`` reads, and changes something with some arguments;
            ``writes`` is for agents that may write.
        answer: called with the desk, the reply and the checked arguments, which it fills.
    """

    name: str
    about: str
    arguments: tuple[Argument, ...]
    answer: "Callable[[Desk, Reply, Mapping[str, Any]], None]"
    effect: Literal["reads", "may write", "writes"] = "reads"
    destructive: bool = False

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {argument.name: argument.schema() for argument in self.arguments},
        }
        needed = [argument.name for argument in self.arguments if argument.default is None]
        if needed:
            schema["required"] = needed
        return schema

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments, checked, with the defaults of those that were left out.

        Raises:
            InvalidInput: one is not accepted, missing, or unknown.
        """
        names = [argument.name for argument in self.arguments]
        for name in values:
            if name not in names:
                raise InvalidInput(
                    f"{name!r:.80} is not accepted: {self.name} takes {', '.join(names)}"
                    f"{did_you_mean(name, names)}"
                )
        checked = {}
        for argument in self.arguments:
            value = values.get(argument.name)
            if value is None and argument.default is None:
                raise InvalidInput(f"{argument.name} is missing: {self.name} needs it")
            if value is None:
                checked[argument.name] = argument.default
            else:
                checked[argument.name] = argument.check(value)
        return checked
