"""What a module of this package says about its format, and the choice among formats by keys."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from autoscaler import plugins
from autoscaler.errors import TraceError

CONTAINERS = frozenset({"jsonl", "csv", "parquet"})


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller of ``load`` wants, for ``Format.settle``; most of it is for a rate curve.

    Attributes:
        skip_bad_rows: leave out and count, instead of refusing the file.
        seed: of the generator.
        rate_scale: factor on every rate, > 0.
        arrival_cv: coefficient of variation of the inter-arrival times: 1 Poisson, 0 even.
        prompt_tokens: of every request.
        output_tokens: of every request.
        start_s: first second of the curve wanted, since the curve's first row.
        duration_s: seconds wanted; None is to the end of the curve.
    """

    skip_bad_rows: bool = False
    seed: int = 0
    rate_scale: float = 1.0
    arrival_cv: float = 1.0
    prompt_tokens: int = 1024
    output_tokens: int = 256
    start_s: float = 0.0
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What ``Format.settle`` returns: the file's final rows and what to tell about them."""

    frame: pl.DataFrame
    notices: tuple[str, ...] = ()
    skipped: int = 0


def _renamed(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


@dataclass(frozen=True, slots=True)
class Format:
    """One layout of keys or columns. A format module holds ``FORMATS``, a tuple of these.

    Attributes:
        arrival: the key of the arrival time.
        prompt_tokens: the key of the prompt's length, "" if there is none.
        output_tokens: the key of the output's length, "" if there is none.
        nested: the key of a list of objects that hold the two lengths, "" if they are beside the
            arrival time.
        units_per_s: how many of the file's time units make a second, e.g. 1000.
        also: further keys that must be there for the format to be detected.
        without: keys that must not be there for the format to be detected.
        types: types of the columns that are not Float64, and of further columns to read where the
            file has them.
        extract: makes of the columns read, beside ``line``, the columns ``arrival`` (Float64 or
            Int64, in the file's own unit), ``prompt_tokens`` and ``output_tokens`` (Float64), null
            where a value is bad; may filter, explode, or mark failed requests by a Boolean
            ``failed``. By default it renames.
        settle: sees all rows of one file together, in file order, with ``line`` and every column
            that ``extract`` left; for formats whose rows depend on one another.
        samples: ``settle`` makes the requests, already within ``Options.start_s`` and
            ``duration_s``.
        wall_clock: the times are instants, which several files share.
        time_rule: what an arrival time must be, for error messages.
        failed_rule: why rows are marked ``failed``, for the notice.
        notice: what to tell when the format was detected rather than named.
        containers: which of ``CONTAINERS`` it may come in.
        name: the module's stem, filled in by ``formats``.
    """

    arrival: str
    prompt_tokens: str
    output_tokens: str
    nested: str = ""
    units_per_s: float = 1.0
    also: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    types: Mapping[str, pl.DataType] = field(default_factory=dict)
    extract: Callable[[pl.DataFrame], pl.DataFrame] = _renamed
    settle: Callable[[str, pl.DataFrame, Options], Settled] | None = None
    samples: bool = False
    wall_clock: bool = False
    time_rule: str = "a number from 0"
    failed_rule: str = ""
    notice: str = ""
    containers: frozenset[str] = CONTAINERS
    name: str = ""

    @property
    def keys(self) -> frozenset[str]:
        """The keys without which nothing can be read."""
        lengths = {self.nested} if self.nested else {self.prompt_tokens, self.output_tokens}
        return frozenset({self.arrival} | lengths - {""})

    def matches(self, columns: frozenset[str], container: str) -> bool:
        """Whether a file of ``container`` with these keys is of this format."""
        return (
            container in self.containers
            and (self.keys | self.also) <= columns
            and not self.without & columns
        )

    def schema(self) -> dict[str, pl.DataType]:
        """Every column to read, with its type."""
        return dict.fromkeys(sorted(self.keys), pl.Float64()) | dict(self.types)

    def canonical(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The columns of the file made into ``arrival``, ``prompt_tokens``, ``output_tokens``."""
        if self.extract is not _renamed:
            return self.extract(frame)
        return frame.rename(
            {
                self.arrival: "arrival",
                self.prompt_tokens: "prompt_tokens",
                self.output_tokens: "output_tokens",
            }
        )


def formats(name: str) -> tuple[Format, ...]:
    """The layouts of one format.

    Raises:
        ConfigError: unknown name; the message lists what exists.
    """
    return tuple(replace(f, name=name) for f in plugins.find("traces", name).FORMATS)


def choose(columns: Iterable[str], container: str, wanted: str, at: str) -> Format:
    """The one format that these keys are of.

    Args:
        columns: the keys of the first object, or the header.
        container: one of ``CONTAINERS``.
        wanted: "auto", or a format's name; a named format needs only its own keys to be there, so
            that a person can say the unit of an ambiguous file.
        at: ``file:line`` of the keys.

    Raises:
        TraceError: no format, or more than one, has these keys.
        ConfigError: ``wanted`` is no format.
    """
    found = frozenset(columns)
    if wanted != "auto":
        known = formats(wanted)
        fitting = [f for f in known if container in f.containers and f.keys <= found]
        if fitting:
            return fitting[0]
        needs = " or ".join(_listed(f.keys | f.also) for f in known)
        raise TraceError(f"{at}: format {wanted} needs the keys {needs}; found {_listed(found)}")
    every = [f for name in plugins.names("traces") for f in formats(name)]
    fitting = [f for f in every if f.matches(found, container)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        which = ", ".join(f.name for f in fitting)
        raise TraceError(
            f"{at}: must be of one format, the keys fit {which} (name one); found {_listed(found)}"
        )
    which = "; ".join(f"{f.name}: {_listed(f.keys | f.also)}" for f in every)
    raise TraceError(f"{at}: keys fit no trace format ({which}); found {_listed(found)}")


def _listed(keys: Iterable[str]) -> str:
    """Keys for a message: printable and of bounded length, since they come from the file."""
    names = sorted(keys)
    shown = ", ".join(n if n.isidentifier() and len(n) < 40 else repr(n[:40]) for n in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "") or "none"
