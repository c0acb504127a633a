"""Keeping passwords and keys out of records: out of command lines, addresses and patches."""

import re
from collections.abc import Iterable, Mapping

HIDDEN = "…"
"""The replacement of a secret."""
# The end of a name tells that it is a secret's: max_tokens and TOKENIZERS_PARALLELISM are no secrets.
_KEY = r"(?:api|access|secret|private|auth|account|encryption|signing|storage|wandb)[_-]?key(?:[_-]?id)?"
_NAME_END = rf"(?:secret|token|passw(?:or)?d|passphrase|pwd|auth|credentials?|connection[_-]?string|{_KEY})"
_SECRET_NAME = rf"[\w.-]*{_NAME_END}"
_MIN_LENGTH = 6  # characters of a value, because a shorter one is no secret and is part of many words
# This is --api-key=…, or password=… as Hydra writes it.
_OPTION = re.compile(rf"(-*{_SECRET_NAME}=).{{{_MIN_LENGTH},}}", re.IGNORECASE | re.DOTALL)
_OPTION_ALONE = re.compile(rf"-+{_SECRET_NAME}", re.IGNORECASE)  # --api-key, and the key is the next argument
# PWD is no secret but a folder.
_SECRET_VARIABLE = re.compile(rf"(?!(?:OLD)?PWD$){_SECRET_NAME}|HALVING_CATALOG|DATABASE_URL", re.IGNORECASE)
# In code only literals are hidden, because an expression may follow `token =`. <|endoftext|>, ${TOKEN} and
# {{ token }} are no secrets.
_QUOTED = re.compile(
    rf"""({_NAME_END}["']?\]?\s*(?::\s*str\s*)?[:=]\s*[rbu]?)(["'])(?!\$)[^\s"'<{{\[]{{{_MIN_LENGTH},}}\2""",
    re.IGNORECASE,
)
_UNQUOTED = re.compile(rf"({_NAME_END}\s*[:=]\s*)[^\s\"'<>|{{}}()\[\]$]{{{_MIN_LENGTH},}}", re.IGNORECASE)
_SETTINGS_FILE = re.compile(
    r".*\.(?:ya?ml|toml|ini|cfg|conf|properties|sh|txt|tfvars)|.*(?:container|docker)file.*", re.DOTALL
)
# Every name of a secret has one of these words, which are quick to search for.
_WORDS = ("secret", "token", "pass", "pwd", "auth", "credential", "string", "key")
# Tokens that their own beginnings tell, wherever they stand.
_TOKEN = re.compile(
    r"""\b(?:hlv_[\w-]{16,}|sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}
    |xox[abeprs]-[\w-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})""",
    re.VERBOSE,
)
_MAX_LINE = 10_000  # characters: a longer one is data, not code
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_SECRET_FILE = re.compile(
    r"\.env(?:\..*)?|\.netrc|\.pgpass|\.pypirc|id_(?:rsa|ed25519).*|.*\.(?:pem|key|p12|tfstate)|.*credentials.*",
    re.DOTALL,
)


def without_password(address: str) -> str:
    """Remove user and password before the host of an address, even if the password has a slash in it."""
    return re.sub(r"(?<=://)(?:[^/\s]+@|[^/\s:@]*:(?!\d+(?:[/?#,]|$))(?:(?!://)\S)*@)", "", address)


def is_secret_name(name: str) -> bool:
    """Whether what has this name, such as a param, is named like a secret."""
    return _SECRET_VARIABLE.fullmatch(name) is not None


def text_without_secrets(text: str) -> str:
    """Hide in any text what looks like a secret.

    These are passwords in addresses, values that are assigned to names like secrets', and tokens that are
    told by their beginnings.
    """
    text = _TOKEN.sub(HIDDEN, without_password(text))
    lowered = text.lower()
    if not any(word in lowered for word in _WORDS):
        return text
    return _UNQUOTED.sub(rf"\1{HIDDEN}", _QUOTED.sub(rf"\1\2{HIDDEN}\2", text))


def without_secrets(command: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Hide the secrets in a command line.

    These are the values of options that are named like secrets, user and password in an address, and the
    values of the environment's secrets, wherever they stand.
    """
    secrets = _secrets_of(environment)
    safe_command: list[str] = []
    hide_next = False
    for argument in command:
        option = _OPTION.fullmatch(argument)
        safe = argument
        if hide_next and len(argument) >= _MIN_LENGTH:
            safe = HIDDEN
        elif option:
            safe = option[1] + HIDDEN
        hide_next = bool(_OPTION_ALONE.fullmatch(argument))
        for secret in secrets:
            safe = safe.replace(secret, HIDDEN)
        safe_command.append(without_password(_QUOTED.sub(rf"\1\2{HIDDEN}\2", safe)))
    return safe_command


def redacted_patch(patch: bytes, environment: Mapping[str, str]) -> tuple[bytes, int]:
    """Hide the secrets in a git patch; returns it with the number of lines that were changed.

    In added lines, the values of the environment's secrets are hidden, and literals that are assigned to
    names like secrets'; in files that are made to hold secrets, everything is hidden. Removed and unchanged
    lines stay, because they are in the commit anyway, and without them the patch could not be applied. A
    binary file's patch is unchanged.
    """
    secrets = _secrets_of(environment)
    lines = patch.split(b"\n")
    old = 0
    new = 0
    hidden = 0
    holds_only_secrets = False
    is_settings = False
    for number, line in enumerate(lines):
        if old <= 0 and new <= 0:
            if line.startswith(b"+++ "):
                name = line[4:].decode(errors="replace").strip('"\t')
                holds_only_secrets = holds_secrets(name)
                is_settings = _is_named(name, _SETTINGS_FILE)
            elif hunk := _HUNK.match(line):
                old, new = (int(count or 1) for count in hunk.groups())
            continue
        old -= line[:1] in (b" ", b"-")
        new -= line[:1] in (b" ", b"+")
        if line[:1] == b"+":
            text = line[1:].decode(errors="surrogateescape")
            safe = text
            if not holds_only_secrets:
                safe = _without_literals(text, secrets, is_settings)
            elif len(text) >= _MIN_LENGTH:
                safe = HIDDEN
            lines[number] = b"+" + safe.encode(errors="surrogateescape")
            hidden += safe != text
    return b"\n".join(lines), hidden


def lines_with_secrets(path: str, text: str, environment: Mapping[str, str]) -> list[int]:
    """The numbers, from 1, of a file's lines in which :func:`redacted_patch` would hide something."""
    secrets = _secrets_of(environment)
    holds_only_secrets = holds_secrets(path)
    is_settings = _is_named(path, _SETTINGS_FILE)
    return [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if (holds_only_secrets and len(line) >= _MIN_LENGTH)
        or _without_literals(line, secrets, is_settings) != line
    ]


def _without_literals(line: str, secrets: list[str], settings: bool) -> str:
    """Hide the secrets in a line of a text file; in ``settings`` their values need no quotes."""
    for secret in secrets:
        line = line.replace(secret, HIDDEN)
    lowered = line.lower()
    if len(line) > _MAX_LINE or not any(word in lowered for word in _WORDS):
        return line
    line = _QUOTED.sub(rf"\1\2{HIDDEN}\2", line)
    if settings:
        line = _UNQUOTED.sub(rf"\1{HIDDEN}", line)
    return line


def holds_secrets(path: str) -> bool:
    """Whether files of this name are made to hold secrets."""
    return _is_named(path, _SECRET_FILE)


def _is_named(path: str, pattern: re.Pattern[str]) -> bool:
    return pattern.fullmatch(path.rpartition("/")[2].lower()) is not None


def _secrets_of(environment: Mapping[str, str]) -> list[str]:
    """The values of variables that are named like secrets, the longest first, as one may be in another."""
    secrets = {
        value
        for name, value in environment.items()
        if _SECRET_VARIABLE.fullmatch(name) and len(value) >= _MIN_LENGTH
    }
    return sorted(secrets, key=len, reverse=True)
