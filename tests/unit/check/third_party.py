"""A source and a target of a third party: whatever was put into PARTS, in the order of building."""

from dataclasses import dataclass
from typing import Any

PARTS: list[Any] = []


@dataclass(frozen=True, slots=True)
class Params:
    """Nothing to say."""


def build(params: Params, context: Any = None) -> Any:
    return PARTS.pop(0)
