"""What a controller must know when its process begins anew, and the text that it is kept as.

Where the text is kept (an annotation, a ConfigMap, a file) is none of this module's business. In
it instants are Unix seconds, since no other clock outlives a process; here they are the loop's own.
A text is somebody else's input: whatever is wrong with it is said, and never an exception.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

VERSION = 1

STATES = ("idle", "resizing", "converged", "refused", "failed", "timed_out")
"""of a resize, as ``convergence.ConvergenceState`` has them"""

_KEPT = 32  # of each list: beyond any budget in use, and far below the 256 KiB of annotations
_SHOWN = 160
_MAX_TEXT = 32_768
_MAX_WIDTH = 1_000_000

Step = tuple[int, int, float]
"""A change of the width: from, to, and when it was asked for (s)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What outlives a process. Instants are seconds on the loop's clock.

    Args:
        desired: width in the spec, as last read or written; None: never read.
        state: one of STATES: where the last resize stands.
        resize: the last resize, ours or somebody else's; None: none that is known.
        in_flight: whether it is not over yet.
        ours: whether it is ours.
        applied: whether it is known to have been written; False: it was asked for, and its answer
            never came (or the process ended before it did).
        over_at_s: when the last resize was over, or began where it is not; None: never.
        direction: of the last resize: 1 up, -1 down, 0 none.
        reversals: instants of changes of direction, oldest first.
        refused: widths that were refused, and why.
        refused_in: digest of the situation in which they were; "" where there are none.
        foreign_at_s: when somebody else set the width last; None: never.
        foreign_width: to what.
        foreign_by: who; "" unknown.
        answered: instants at which somebody else undid our writes, oldest first.
        unanswered_at_s: when we wrote last, if nobody else has written since; None: they have.
        finding: what was wrong with the text that this comes from; "" nothing.
    """

    desired: int | None = None
    state: str = "idle"
    resize: Step | None = None
    in_flight: bool = False
    ours: bool = False
    applied: bool = True
    over_at_s: float | None = None
    direction: int = 0
    reversals: tuple[float, ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    refused_in: str = ""
    foreign_at_s: float | None = None
    foreign_width: int | None = None
    foreign_by: str = ""
    answered: tuple[float, ...] = ()
    unanswered_at_s: float | None = None
    finding: str = ""

    @property
    def blank(self) -> bool:
        """Whether there is nothing in it that a new process would miss."""
        return replace(self, desired=None, state="idle", finding="") == Memory()

    @property
    def told(self) -> tuple[str, str]:
        """Code and reason for the trail of whoever goes on from it."""
        if self.blank:
            return "memory_unusable", self.finding or "nothing in it"
        said = "no resize"
        if self.resize is not None:
            said = f"the last resize {self.resize[0]} -> {self.resize[1]}"
        if self.in_flight:
            said += ", in flight" if self.applied else ", asked for and perhaps never written"
        return "recalled", "; ".join(part for part in (said, self.finding) if part)

    def says_more_than(self, other: "Memory | None") -> bool:
        """Whether keeping this would keep anything that ``other`` does not hold.

        Old reversals are forgotten whenever somebody looks, which is no news.
        """
        if other is None:
            return not self.blank
        lists = {"reversals": (), "answered": ()}
        if replace(self, **lists) != replace(other, **lists):  # type: ignore[arg-type]  # fields' names
            return True
        return not (
            set(self.reversals) <= set(other.reversals)
            and set(self.answered) <= set(other.answered)
        )


def encode(memory: Memory, epoch_s: float) -> str:
    """The text to keep; defaults are left out.

    Args:
        memory: what to keep.
        epoch_s: Unix time at which the loop's clock shows 0, s.
    """
    content: dict[str, Any] = {"v": VERSION}
    for field in fields(Memory):
        value = getattr(memory, field.name)
        if field.name == "finding" or value == field.default:
            continue
        if field.name in _INSTANTS:
            value = round(value + epoch_s, 3)
        elif field.name in _LISTS:
            value = [round(at_s + epoch_s, 3) for at_s in value[-_KEPT:]]
        elif field.name == "resize":
            value = [value[0], value[1], round(value[2] + epoch_s, 3)]
        elif field.name == "refused":
            value = [[width, why[:_SHOWN]] for width, why in value[-_KEPT:]]
        elif field.name == "foreign_by":
            value = value[:_SHOWN]
        content[field.name] = value
    return json.dumps(content, separators=(",", ":"))


def decode(text: str, now_s: float, epoch_s: float) -> Memory:
    """What a text says, as far as it says anything.

    An instant in the future is taken for now: a wall clock has gone back since, and whatever waits
    for that instant then waits its whole time once, no less and no longer.

    Args:
        text: made by ``encode``, by another version of it, or by anybody.
        now_s: the loop's clock.
        epoch_s: Unix time at which the loop's clock shows 0, s.

    Returns:
        The memory. Unusable: a blank one whose ``finding`` says why.
    """
    try:
        return _read(_object(text), now_s, epoch_s)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return Memory(finding=f"memory ignored: {error}")


def _object(text: str) -> dict[str, Any]:
    if len(text) > _MAX_TEXT:
        raise ValueError(f"must have at most {_MAX_TEXT} characters; got {len(text)}")
    content = json.loads(text)
    if not isinstance(content, dict) or content.get("v") != VERSION:
        raise ValueError(f"must be an object with v: {VERSION}; got {text!r:.80}")
    return content


def _read(content: Mapping[str, Any], now_s: float, epoch_s: float) -> Memory:
    ahead_s = 0.0

    def instant(value: object) -> float:
        nonlocal ahead_s
        at_s = _number(value) - epoch_s
        ahead_s = max(ahead_s, at_s - now_s)
        return min(at_s, now_s)

    known: dict[str, Callable[[Any], Any]] = {
        "desired": _width,
        "state": lambda v: _one_of(v, STATES),
        "resize": lambda v: (_width(v[0]), _width(v[1]), instant(v[2])),
        "in_flight": _flag,
        "ours": _flag,
        "applied": _flag,
        "direction": lambda v: _one_of(v, (-1, 0, 1)),
        "refused": lambda v: tuple((_width(w), _text(why)) for w, why in v[-_KEPT:]),
        "refused_in": _text,
        "foreign_width": _width,
        "foreign_by": _text,
        **dict.fromkeys(_INSTANTS, instant),
        **dict.fromkeys(_LISTS, lambda v: tuple(sorted(instant(at) for at in v[-_KEPT:]))),
    }
    values = {}
    for key, read in known.items():
        if key in content:
            try:
                values[key] = read(content[key])
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise ValueError(f"{key}: {error}; got {content[key]!r:.80}") from error
    memory = Memory(**values)
    if memory.in_flight and (
        memory.resize is None
        or memory.desired is None
        or memory.state not in ("resizing", "timed_out")
    ):
        raise ValueError("in_flight: must have a resize, a desired width and a state to match")
    if not memory.in_flight and memory.state in ("resizing", "timed_out"):
        raise ValueError(f"state: must be over where nothing is in flight; got {memory.state}")
    if ahead_s > _AHEAD_S:
        finding = f"memory from {ahead_s:.0f} s in the future, taken for now"
        return replace(memory, finding=finding)
    return memory


_INSTANTS = ("over_at_s", "foreign_at_s", "unanswered_at_s")
_LISTS = ("reversals", "answered")
_AHEAD_S = 1.0  # two machines' clocks differ by less, usually, and nothing here waits so short


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ValueError("must be a finite number")


def _width(value: object) -> int:
    if type(value) is int and 0 <= value <= _MAX_WIDTH:
        return value
    raise ValueError(f"must be a whole number from 0 to {_MAX_WIDTH}")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value[:_SHOWN]
    raise ValueError("must be a text")


def _one_of(value: object, known: tuple[Any, ...]) -> Any:
    if value in known and not isinstance(value, bool):
        return value
    raise ValueError(f"must be one of {', '.join(map(str, known))}")
