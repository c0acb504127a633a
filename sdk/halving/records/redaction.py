"""Keeping passwords and keys out of records: in a command line, an address and a patch, and files that are
made to hold secrets.
"""

import re
from collections.abc import Iterable, Mapping

HIDDEN = "…"
"""What stands in the place of a secret."""
# A name is a secret's by its end: max_tokens and TOKENIZERS_PARALLELISM are no secrets.
_KEY = r"(?:api|access|secret|private|auth|account|encryption|signing|storage|wandb)[_-]?key(?:[_-]?id)?"
_NAME_END = rf"(?:secret|token|passw(?:or)?d|passphrase|pwd|auth|credentials?|connection[_-]?string|{_KEY})"
_SECRET_NAME = rf"[\w.-]*{_NAME_END}"
_SHORTEST = 6  # characters of a value: a shorter one is no secret, and is part of many words
# --api-key=…, or password=… as Hydra writes it
_OPTION = re.compile(rf"(-*{_SECRET_NAME}=).{{{_SHORTEST},}}", re.IGNORECASE | re.DOTALL)
_OPTION_ALONE = re.compile(rf"-+{_SECRET_NAME}", re.IGNORECASE)  # --api-key, and the key is the next argument
# PWD is a folder
_SECRET_VARIABLE = re.compile(rf"(?!(?:OLD)?PWD$){_SECRET_NAME}|HALVING_CATALOG|DATABASE_URL", re.IGNORECASE)
# In code only literals are hidden: what follows `token =` may be an expression. <|endoftext|>, ${TOKEN} and
# {{ token }} are no secrets.
_QUOTED = re.compile(
    rf"""({_NAME_END}["']?\]?\s*(?::\s*str\s*)?[:=]\s*[rbu]?)(["'])(?!\$)[^\s"'<{{\[]{{{_SHORTEST},}}\2""",
    re.IGNORECASE,
)
_UNQUOTED = re.compile(rf"({_NAME_END}\s*[:=]\s*)[^\s\"'<>|{{}}()\[\]$]{{{_SHORTEST},}}", re.IGNORECASE)
_SETTINGS_FILE = re.compile(
    r".*\.(?:ya?ml|toml|ini|cfg|conf|properties|sh|txt|tfvars)|.*(?:container|docker)file.*", re.DOTALL
)
# each name has one of them; they are quick to look for
_WORDS = ("secret", "token", "pass", "pwd", "auth", "credential", "string", "key")
_LONGEST_LINE = 10_000  # characters: a longer one is data, not code
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_SECRET_FILE = re.compile(
    r"\.env(?:\..*)?|\.netrc|\.pgpass|\.pypirc|id_(?:rsa|ed25519).*|.*\.(?:pem|key|p12|tfstate)|.*credentials.*",
    re.DOTALL,
)


def without_password(address: str) -> str:
    """An address without user and password before its host, even if the password has a slash in it; a port is
    no password.
    """
    return re.sub(r"(?<=://)(?:[^/\s]+@|[^/\s:@]*:(?!\d+(?:[/?#,]|$))(?:(?!://)\S)*@)", "", address)


def without_secrets(command: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """A command line as it may be recorded.

    Hidden are the values of options that are named like secrets, user and password in an address, and the
    values of the environment's secrets, wherever they stand.
    """
    known = _secrets_of(environment)
    shown: list[str] = []
    hide_next = False
    for argument in command:
        option = _OPTION.fullmatch(argument)
        safe = (
            HIDDEN if hide_next and len(argument) >= _SHORTEST else option[1] + HIDDEN if option else argument
        )
        hide_next = bool(_OPTION_ALONE.fullmatch(argument))
        for secret in known:
            safe = safe.replace(secret, HIDDEN)
        shown.append(without_password(_QUOTED.sub(rf"\1\2{HIDDEN}\2", safe)))
    return shown


def redacted_patch(patch: bytes, environment: Mapping[str, str]) -> tuple[bytes, int]:
    """A git patch as it may be stored, and in how many of its lines something was hidden.

    In the lines that it adds, the values of the environment's secrets are hidden, and literals that are
    assigned to names like secrets'; in files that are made to hold secrets, everything. Lines that it
    removes, and the unchanged lines around, stay: they are in the commit anyway, and without them the patch
    could not be applied. A binary file's patch stays as it is.
    """
    known = _secrets_of(environment)
    lines = patch.split(b"\n")
    old = 0
    new = 0
    hidden = 0
    secret = settings = False
    for number, line in enumerate(lines):
        if old <= 0 and new <= 0:
            if line.startswith(b"+++ "):
                name = line[4:].decode(errors="replace").strip('"\t')
                secret = holds_secrets(name)
                settings = _is_named(name, _SETTINGS_FILE)
            elif hunk := _HUNK.match(line):
                old, new = (1 if count is None else int(count) for count in hunk.groups())
            continue
        old -= line[:1] in (b" ", b"-")
        new -= line[:1] in (b" ", b"+")
        if line[:1] == b"+":
            text = line[1:].decode(errors="surrogateescape")
            shown = (
                (HIDDEN if len(text) >= _SHORTEST else text)
                if secret
                else _without_literals(text, known, settings)
            )
            lines[number] = b"+" + shown.encode(errors="surrogateescape")
            hidden += shown != text
    return b"\n".join(lines), hidden


def lines_with_secrets(path: str, text: str, environment: Mapping[str, str]) -> list[int]:
    """The numbers of the lines of a file, from 1, that hold what :func:`redacted_patch` would hide; it may be
    no secret.
    """
    known = _secrets_of(environment)
    secret = holds_secrets(path)
    settings = _is_named(path, _SETTINGS_FILE)
    return [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if (secret and len(line) >= _SHORTEST) or _without_literals(line, known, settings) != line
    ]


def _without_literals(line: str, secrets: list[str], settings: bool) -> str:
    """A line of a text file without secrets. In ``settings`` values need no quotes."""
    for secret in secrets:
        line = line.replace(secret, HIDDEN)
    lowered = line.lower()
    if len(line) > _LONGEST_LINE or not any(word in lowered for word in _WORDS):
        return line
    line = _QUOTED.sub(rf"\1\2{HIDDEN}\2", line)
    return _UNQUOTED.sub(rf"\1{HIDDEN}", line) if settings else line


def holds_secrets(path: str) -> bool:
    """Whether files of this name are made to hold secrets."""
    return _is_named(path, _SECRET_FILE)


def _is_named(path: str, pattern: re.Pattern[str]) -> bool:
    return pattern.fullmatch(path.rpartition("/")[2].lower()) is not None


def _secrets_of(environment: Mapping[str, str]) -> list[str]:
    """The values of variables that are named like secrets, the longest first: one may be part of another."""
    known = {
        value
        for name, value in environment.items()
        if _SECRET_VARIABLE.fullmatch(name) and len(value) >= _SHORTEST
    }
    return sorted(known, key=len, reverse=True)
