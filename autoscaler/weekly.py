"""Least widths by day of the week and time of day, in a time zone.

Inside all instants are Unix seconds; local time is only how people write the boundaries. Each
boundary passes once a day:

- Clocks go forward: a boundary in the hour that does not exist passes at the jump. A window that
  lies wholly in that hour is not there on that day.
- Clocks go back: a boundary in the hour that comes twice passes the first time.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from autoscaler.errors import ConfigError
from autoscaler.parameters import require_whole

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_CLOCK = re.compile(r"([01]\d|2[0-4]):([0-5]\d)")
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of local time on some days of the week.

    Args:
        days: on which it begins, 0 is Monday.
        begin_min, end_min: minutes since midnight, 0..1440; an end at or before the beginning
            is on the next day.
        min_width: least width in it, >= 0.
        label: for people.
    """

    days: tuple[int, ...]
    begin_min: int
    end_min: int
    min_width: int
    label: str


def zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name.

    Raises:
        ConfigError: there is none of that name.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        rule = "must be an IANA time zone such as Europe/Berlin or Etc/UTC"
        raise ConfigError(f"timezone: {rule}; got {name!r}") from error


def window(given: Mapping[str, Any], where: str) -> Window:
    """A window from ``{days: [mon, tue], from: "08:00", to: "18:00", min_width: 4}``.

    Raises:
        ConfigError: a key is unknown or missing, or a value unusable.
    """
    for key in given:
        if key not in ("days", "from", "to", "min_width"):
            rule = "unknown key; must be one of days, from, to, min_width"
            raise ConfigError(f"{where}.{key}: {rule}")
    for key in ("from", "to", "min_width"):
        if key not in given:
            raise ConfigError(f"{where}.{key}: must be given; got nothing")
    days = given.get("days", DAYS)
    if isinstance(days, str) or not days or any(day not in DAYS for day in days):
        raise ConfigError(f"{where}.days: must be a list of {', '.join(DAYS)}; got {days!r}")
    begin_min = _minutes(given["from"], f"{where}.from")
    end_min = _minutes(given["to"], f"{where}.to")
    if begin_min == _DAY_MINUTES:
        raise ConfigError(f"{where}.from: must be at most 23:59; got {given['from']!r}")
    width = given["min_width"]
    require_whole(f"{where}.min_width", width, 0)
    if width is None:
        raise ConfigError(f"{where}.min_width: must be given; got nothing")
    numbers = tuple(sorted({DAYS.index(day) for day in days}))
    label = f"at least {width} from {given['from']} to {given['to']}"
    return Window(numbers, begin_min, end_min, width, label)


def local_instant(text: str, key: str, timezone: ZoneInfo) -> float:
    """Unix seconds of a local date and time, ISO 8601; of two the first.

    Raises:
        ConfigError: no date and time, or one that the time zone skips.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        rule = "must be a local date and time such as 2026-01-05T00:00:00"
        raise ConfigError(f"{key}: {rule}; got {text!r}") from error
    if at.tzinfo is not None:
        return at.timestamp()
    local = at.replace(tzinfo=timezone)
    if not _exists(local, timezone):
        rule = f"must exist in {timezone.key}, where clocks go forward then"
        raise ConfigError(f"{key}: {rule}; got {text!r}")
    return local.timestamp()


class Weekly:
    """The least width at an instant: the largest of the windows that are open then.

    Args:
        windows: may overlap.
        timezone: that their times are in.
        lead_s: how long before its beginning a window opens, s, 0..86400.
    """

    def __init__(self, windows: Sequence[Window], timezone: ZoneInfo, lead_s: float = 0.0) -> None:
        self._windows = tuple(windows)
        self._zone = timezone
        self._lead_s = lead_s
        self._day: date | None = None
        self._open: list[tuple[float, float, Window]] = []

    def at(self, unix_s: float) -> Window | None:
        """The open window that demands most; None: none is open."""
        day = datetime.fromtimestamp(unix_s, self._zone).date()
        if day != self._day:
            self._day, self._open = day, self._around(day)
        found = [w for begin_s, end_s, w in self._open if begin_s <= unix_s < end_s]
        return max(found, key=lambda w: w.min_width, default=None)

    def _around(self, day: date) -> list[tuple[float, float, Window]]:
        """Windows that begin on the day before, on this day, or on the next (for their lead)."""
        found = []
        for on in (day - timedelta(days=1), day, day + timedelta(days=1)):
            for one in self._windows:
                if on.weekday() in one.days:
                    over = on if one.end_min > one.begin_min else on + timedelta(days=1)
                    begin_s = self._instant(on, one.begin_min)
                    end_s = self._instant(over, one.end_min)
                    if begin_s < end_s:
                        found.append((begin_s - self._lead_s, end_s, one))
        return found

    def _instant(self, day: date, minutes: int) -> float:
        if minutes == _DAY_MINUTES:
            day, minutes = day + timedelta(days=1), 0
        local = datetime.combine(day, time(minutes // 60, minutes % 60), self._zone)
        if _exists(local, self._zone):
            return local.timestamp()  # of a time that comes twice, the first: fold is 0
        # The offset of either side of the jump gives an instant on the other side of it.
        before, after = int(local.replace(fold=1).timestamp()), int(local.timestamp())
        offset = datetime.fromtimestamp(before, self._zone).utcoffset()
        while after - before > 1:
            middle = (before + after) // 2
            if datetime.fromtimestamp(middle, self._zone).utcoffset() == offset:
                before = middle
            else:
                after = middle
        return float(after)


def _exists(local: datetime, timezone: ZoneInfo) -> bool:
    back = datetime.fromtimestamp(local.timestamp(), timezone)
    return back.replace(tzinfo=None) == local.replace(tzinfo=None)


def _minutes(given: object, key: str) -> int:
    match = _CLOCK.fullmatch(given) if isinstance(given, str) else None
    minutes = _DAY_MINUTES + 1 if match is None else 60 * int(match[1]) + int(match[2])
    if minutes > _DAY_MINUTES:
        # Without quotes YAML reads 18:00 as the number 1080.
        raise ConfigError(f'{key}: must be a time such as "08:00", in quotes; got {given!r}')
    return minutes
