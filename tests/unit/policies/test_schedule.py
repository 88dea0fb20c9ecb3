"""Schedule: windows in a time zone as a floor, with the hours that clocks skip and repeat."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from autoscaler.errors import ConfigError
from autoscaler.model import Slo
from autoscaler.parameters import from_mapping
from autoscaler.policies.schedule import Params, build
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation
from autoscaler.weekly import Weekly, local_instant, window, zone

BERLIN = "Europe/Berlin"
FORWARD, BACK = "2026-03-29", "2026-10-25"  # 02:00 becomes 03:00; 03:00 becomes 02:00


def between(begin, end, width=6, **more):
    return {"from": begin, "to": end, "min_width": width, **more}


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def open_minutes(day, windows, timezone=BERLIN):
    """The UTC times of a local day and the next at which a window opens and closes."""
    weekly = Weekly([window(w, "windows[0]") for w in windows], zone(timezone))
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(hours=12)
    edges, was = [], False
    for minute in range(48 * 60):
        at = start + timedelta(minutes=minute)
        now = weekly.at(at.timestamp()) is not None
        if now != was:
            edges.append(at.strftime("%d %H:%M"))
        was = now
    return edges


@pytest.mark.parametrize(
    ("case", "day", "times", "expected"),
    [
        ("an ordinary day", "2026-03-25", ("08:00", "18:00"), ["25 07:00", "25 17:00"]),
        ("begins in the skipped hour", FORWARD, ("02:30", "06:00"), ["29 01:00", "29 04:00"]),
        ("ends in the skipped hour", FORWARD, ("00:30", "02:30"), ["28 23:30", "29 01:00"]),
        ("spans the skipped hour", FORWARD, ("01:00", "04:00"), ["29 00:00", "29 02:00"]),
        ("lies in the skipped hour", FORWARD, ("02:15", "02:45"), []),
        ("lies in the repeated hour", BACK, ("02:15", "02:45"), ["25 00:15", "25 00:45"]),
        ("begins in the repeated hour", BACK, ("02:30", "06:00"), ["25 00:30", "25 05:00"]),
        ("ends in the repeated hour", BACK, ("01:00", "02:30"), ["24 23:00", "25 00:30"]),
        ("spans the repeated hour", BACK, ("01:00", "04:00"), ["24 23:00", "25 03:00"]),
    ],
)
def test_each_boundary_passes_once_also_when_clocks_change_T28(case, day, times, expected):
    name = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[datetime.fromisoformat(day).weekday()]
    assert open_minutes(day, [between(*times, days=[name])]) == expected, case


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (("22:00", "06:00"), ["25 22:00", "26 06:00"]),
        (("00:00", "24:00"), ["25 00:00", "26 00:00"]),
        (("22:00", "24:00"), ["25 22:00", "26 00:00"]),
        (("06:00", "06:00"), ["25 06:00", "26 06:00"]),
    ],
)
def test_a_window_may_end_on_the_next_day(times, expected):
    assert open_minutes("2026-03-25", [between(*times, days=["wed"])], "Etc/UTC") == expected


def test_of_overlapping_windows_the_largest_counts_and_gaps_are_open():
    weekly = Weekly(
        [window(between("08:00", "18:00", 4), "w"), window(between("12:00", "13:00", 9), "w")],
        zone("Etc/UTC"),
    )
    found = [weekly.at(utc(f"2026-03-25T{hour}:00")) for hour in ("07", "09", "12", "13", "18")]
    assert [w and w.min_width for w in found] == [None, 4, 9, 4, None]


def test_a_window_opens_its_lead_before_its_beginning_also_across_midnight():
    weekly = Weekly(
        [window(between("00:10", "01:00", days=["wed"]), "w")], zone("Etc/UTC"), lead_s=1200.0
    )
    assert weekly.at(utc("2026-03-24T23:49:59")) is None
    assert weekly.at(utc("2026-03-24T23:50:00")) is not None
    assert weekly.at(utc("2026-03-25T01:00:00")) is None


def test_a_start_in_the_skipped_hour_is_refused_and_in_the_repeated_one_is_the_first_T28():
    with pytest.raises(ConfigError, match="starts_at: must exist in Europe/Berlin, where clocks"):
        local_instant(f"{FORWARD}T02:30:00", "starts_at", ZoneInfo(BERLIN))
    first = local_instant(f"{BACK}T02:30:00", "starts_at", ZoneInfo(BERLIN))
    assert first == utc("2026-10-25T00:30:00")
    offset = local_instant(f"{BACK}T02:30:00+01:00", "starts_at", ZoneInfo(BERLIN))
    assert offset == utc("2026-10-25T01:30:00")


def test_without_a_time_zone_there_is_no_schedule_T28():
    with pytest.raises(ConfigError, match="timezone: must be given; got nothing"):
        from_mapping(Params, {"policy": "hold", "windows": WORK}, "schedule.yaml")


WORK = (between("08:00", "18:00", 6),)


def params(**given):
    defaults = {"policy": "hold", "timezone": "Etc/UTC", "windows": WORK}
    return Params(**{"starts_at": "2026-01-05T07:59:50", **defaults, **given})


def widths(policy, ticks, start_s=1000.0, width=2, **signals):
    return [
        policy.propose(observation(i, start_s + 5.0 * i, width, **signals)).width
        for i in range(ticks)
    ]


def test_the_floor_rises_under_the_inner_policy_when_the_window_opens():
    policy = build(params(), PolicyContext(Slo(), 5.0))
    assert widths(policy, 4) == [2, 2, 6, 6]
    assert policy.state() == {"floor": 6, "inner": {}}


def test_the_inner_policy_may_want_more():
    policy = build(params(policy="static:7"), PolicyContext(Slo(), 5.0))
    assert widths(policy, 4) == [7, 7, 7, 7]


def test_a_closing_window_only_lets_go():
    given = params(starts_at="2026-01-05T17:59:50")
    said = build(given, PolicyContext(Slo(), 5.0))
    assert widths(said, 4, width=6) == [6, 6, 6, 6]


def test_the_wall_clock_wins_where_there_is_one_and_needs_no_start():
    epoch_s = utc("2026-01-05T07:59:50") - 1000.0
    live = build(params(starts_at=None), PolicyContext(Slo(), 5.0, epoch_s=epoch_s))
    assert widths(live, 4) == [2, 2, 6, 6]
    elsewhere = build(
        params(starts_at="2001-01-01T12:00:00"), PolicyContext(Slo(), 5.0, None, epoch_s)
    )
    assert widths(elsewhere, 4) == [2, 2, 6, 6]


def test_without_wall_clock_and_start_it_says_what_is_missing():
    with pytest.raises(ConfigError, match="starts_at: must be given where there is no wall clock"):
        build(params(starts_at=None), PolicyContext(Slo(), 5.0))


def test_the_inner_policy_takes_parameters():
    given = params(policy={"kind": "threshold", "up_for_s": 0.0})
    said = build(given, PolicyContext(Slo(), 5.0)).propose(observation(ttft_p95_s=9.0, width=2))
    assert (said.width, said.code) == (3, "high")


def test_reasons_name_the_window_and_the_inner_policys_wish():
    policy = build(params(starts_at="2026-01-05T12:00:00"), PolicyContext(Slo(), 5.0))
    said = policy.propose(observation(width=2))
    assert said.code == "schedule"
    assert said.reason == (
        "at least 6 from 08:00 to 18:00; else: this policy never changes the width"
    )


def test_what_the_decision_log_holds_of_it_makes_the_same_policy_again():
    rates = ({"width": 1.0, "period_s": 60.0},)
    given = params(
        policy={"kind": "hpa", "target": 3.0, "up_rates": rates},
        windows=(between("08:00", "18:00", 6, days=("mon", "sun")),),
    )
    assert from_mapping(Params, asdict(given), "log") == given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timezone": "Berlin"}, "timezone: must be an IANA time zone such as .*; got 'Berlin'"),
        ({"timezone": "Europe"}, "timezone: must be an IANA time zone"),
        ({"timezone": ""}, "timezone: must be an IANA time zone"),
        ({"timezone": "../etc/passwd"}, "timezone: must be an IANA time zone"),
        ({"windows": (between(480, "18:00"),)}, r"windows\[0\].from: .* in quotes; got 480"),
        ({"windows": (between("08:00", "24:01"),)}, r"windows\[0\].to: must be a time such as"),
        ({"windows": (between("24:00", "08:00"),)}, r"windows\[0\].from: must be at most 23:59"),
        ({"windows": (between("8:00", "18:00"),)}, r"windows\[0\].from: must be a time such as"),
        ({"windows": (between("08:00", "18:00", days=["Mon"]),)}, r"windows\[0\].days: must be"),
        ({"windows": (between("08:00", "18:00", days="mon"),)}, r"windows\[0\].days: must be"),
        ({"windows": (between("08:00", "18:00", -1),)}, r"windows\[0\].min_width: must be"),
        ({"windows": (between("08:00", "18:00", None),)}, r"windows\[0\].min_width: must be"),
        ({"windows": ({"from": "08:00", "to": "09:00"},)}, r"min_width: must be given"),
        ({"windows": (between("08:00", "18:00", max_width=8),)}, r"max_width: unknown key"),
        ({"lead_s": 90_000}, "lead_s: must be a finite number >= 0 and <= 86400; got 90000"),
        ({"starts_at": "monday"}, "starts_at: must be a local date and time such as"),
        ({"policy": "speling"}, "policy: policies kind: must be one of"),
        ({"policy": {"up_for_s": 1}}, "policy.kind: must be one of .*; got None"),
        ({"policy": {"kind": "threshold", "up": 1}}, "policy: up: unknown key"),
        ({"policy": "static"}, "policy: width: must be given"),
        ({"policy": "threshold:3"}, "policy: threshold must be given without an argument"),
        ({"policy": "schedule"}, "policy: policy: must be given"),
    ],
)
def test_params_name_key_rule_and_value(given, message):
    with pytest.raises(ConfigError, match=message):
        params(**given)
