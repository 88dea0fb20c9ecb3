"""Keeps secrets out of everything that people or machines read, and control characters as well.

Knows two kinds: what stands under a key that names a secret, and what is part of an URL. A second
line of defence; whoever builds a message leaves secrets out in the first place.

Words of servers and lines of traces get into messages. In a terminal their control characters
could erase or imitate other lines; so they are shown as escapes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

MASK = "***"

_SECRET_KEY = re.compile(
    r"passw(or)?d|secret|token(?!s)|bearer|credential|api_?key|private_?key|authorization|cookie"
    r"|headers",
    re.IGNORECASE,
)
_PLACE = re.compile(r"_(file|path|name)$", re.IGNORECASE)  # where a secret is, not what it is
_USER = re.compile(r"([a-z][a-z0-9+.-]*://)[^/?#\s@'\"]+@", re.IGNORECASE)
_QUERY = re.compile(r"([a-z][a-z0-9+.-]*://[^\s?'\"]+\?)[^\s#'\"]+", re.IGNORECASE)
_SHORTEST = 4
"""A shorter text is taken out only where it stands alone: it is part of too many words."""


def plain(text: str, keep: str = "\n\t") -> str:
    """The text with every character that is not printed shown as an escape, but for those kept."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def is_secret(key: str) -> bool:
    """Whether what stands under this key is not to be shown."""
    return bool(_SECRET_KEY.search(key)) and not _PLACE.search(key)


def masked(value: Any, key: str = "") -> Any:
    """The value with every secret in it replaced, recursively; ``key`` is what it stands under."""
    if isinstance(value, Mapping):
        if is_secret(key):
            return dict.fromkeys(map(str, value), MASK)
        return {str(k): masked(item, str(k)) for k, item in value.items()}
    if value is None or isinstance(value, bool):
        return value
    if is_secret(key):
        return MASK
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return _urls(str(value)) if isinstance(value, str) else value


def unquoted(error: Exception) -> str:
    """Where and what is wrong, of a YAML error, without the line that its own text quotes.

    Begins with ``:line:column`` where that is known, to follow a file's name.
    """
    mark = getattr(error, "problem_mark", None)
    at = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
    problem = str(getattr(error, "problem", None) or "not readable as YAML")
    if "is given twice" not in problem:  # that one names a key
        head, quote, _ = problem.partition("'")
        problem = head.rstrip() + (f" {MASK}" if quote else "")
    return f"{at}: must be valid YAML; {problem}"


class Redaction:
    """Takes the secrets of one configuration out of texts.

    Args:
        content: the configuration; its secrets are what ``masked`` would hide.
    """

    def __init__(self, content: Mapping[str, Any] | None = None) -> None:
        found = {secret for secret in _secrets(content or {}) if len(secret) >= _SHORTEST}
        # As it is, and as ``repr`` writes it; the longest first, for one may be part of another.
        forms = found | {repr(secret)[1:-1] for secret in found}
        self._secrets = sorted(forms, key=len, reverse=True)

    def also(self, content: Mapping[str, Any]) -> "Redaction":
        """One that takes out the secrets of another configuration as well."""
        made = Redaction(content)
        made._secrets = sorted({*self._secrets, *made._secrets}, key=len, reverse=True)
        return made

    def text(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _urls(text) if "://" in text else text

    def value(self, value: Any) -> Any:
        """The same for every text in a JSON-ready value; keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


def _urls(text: str) -> str:
    return _QUERY.sub(rf"\1{MASK}", _USER.sub(rf"\1{MASK}@", text))


def _secrets(value: Any, key: str = "", inside: bool = False) -> Iterator[str]:
    inside = inside or is_secret(key)
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets(item, str(name), inside)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, key, inside)
    elif inside and value is not None and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, str):
        for match in re.finditer(r"://([^/?#\s@'\"]+)@", value):
            yield match[1]
            yield match[1].partition(":")[2]
