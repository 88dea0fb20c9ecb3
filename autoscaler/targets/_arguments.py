"""Reads numbers out of an engine's command line the way its own parser would.

vLLM's parser takes ``--flag=4`` and ``--flag 4``, underscores for dashes, unique prefixes, and the
last of several. What cannot be read is an error: guessed GPUs a rank are wrong GPUs everywhere.
"""

from collections.abc import Sequence

from autoscaler.errors import ConfigError

TENSOR_PARALLEL = ("--tensor-parallel-size", "-tp")
MAX_WIDTH = ("--elastic-ep-max-dp-size",)

# No other vLLM flag begins like this; a shorter prefix is ambiguous, and the engine will not start.
_SHORTEST = {"--tensor-parallel-size": "--te", "--elastic-ep-max-dp-size": "--el"}


def number(arguments: Sequence[object], spellings: Sequence[str]) -> int | None:
    """The value of a flag.

    Args:
        arguments: of the command line, one an entry.
        spellings: the flag's long name, then its short ones.

    Returns:
        A whole number > 0; None: the flag is not given.

    Raises:
        ConfigError: given, but no such number.
    """
    found: str | None = None
    given = iter(arguments)
    for argument in given:
        if not isinstance(argument, str):
            raise ConfigError(f"extraArgs: must be texts; got {argument!r:.80}")
        flag, equals, value = argument.partition("=")
        if not _is(flag, spellings):
            continue
        if not equals:
            after = next(given, None)
            value = after if isinstance(after, str) else ""
        found = value
    if found is None:
        return None
    if not (found.isascii() and found.isdecimal() and int(found) > 0):
        # A variable in a template, or two flags run together: a person has to look.
        raise ConfigError(f"extraArgs: {spellings[0]}: must be a whole number > 0; got {found!r}")
    return int(found)


def _is(flag: str, spellings: Sequence[str]) -> bool:
    long, *short = spellings
    if flag in short:
        return True
    dashed = flag.replace("_", "-")
    return long.startswith(dashed) and dashed.startswith(_SHORTEST[long])
