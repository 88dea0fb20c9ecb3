"""Parts of queries that many panels share.

Series of several processes are told apart by labels that change with each Pod (``pod``,
``instance``); panels speak of targets, so that gauges are taken over all Pods by ``max`` (a standby
has none) and increases are summed.
"""

BY_TARGET = "namespace, target"
NAMESPACE = 'namespace=~"$namespace"'
SELECTED = f'{NAMESPACE}, target=~"$target"'
"""What the template variables choose. Errors of the process itself have an empty target."""
RATE = "$__rate_interval"
STEP = "$__interval"
RANGE = "$__range"


def series(name: str, *matchers: str) -> str:
    """The chosen targets' series of one name."""
    return f"autoscaler_{name}{{{', '.join([SELECTED, *matchers])}}}"


def gauge(name: str, *matchers: str, by: str = "") -> str:
    """A gauge of each target; ``by`` names labels to tell apart besides."""
    labels = f"{BY_TARGET}, {by}" if by else BY_TARGET
    return f"max by ({labels}) ({series(name, *matchers)})"


def signal(name: str) -> str:
    """One signal of each target; nothing while it is unknown."""
    return gauge("signal", f'signal="{name}"')


def total(name: str, *matchers: str, by: str = BY_TARGET, window: str = RANGE) -> str:
    """How much a counter that starts at zero went up in a window."""
    increase = f"increase({series(name, *matchers)}[{window}])"
    return f"sum by ({by}) ({increase})" if by else f"sum({increase})"


def grown(name: str, *matchers: str, by: str, window: str = RATE) -> str:
    """How much counters went up whose labels are not known before they are counted.

    ``increase`` takes a series' first value for its start, so that the one decision of its kind
    would never be seen: a series that is younger than the window counts whole.
    """
    return f"sum by ({by}) ({_grown(series(name, *matchers), window)})"


def _grown(one: str, window: str) -> str:
    # Not ``offset`` alone: after a scrape that failed, every series would look newly born.
    before = f"last_over_time({one}[10m] offset {window})"
    return f"increase({one}[{window}]) and {before} or {one} unless {before}"


def ratio(part: str, whole: str) -> str:
    """A share; no value while there is no whole."""
    return f"{part} / ({whole} > 0)"


def windows_met(window: str, by: str = BY_TARGET) -> str:
    """Share of the rolling windows within the objective, unknown ones left out, 0..1."""
    met = total("slo_windows_total", 'result="met"', by=by, window=window)
    known = total("slo_windows_total", 'result=~"met|missed"', by=by, window=window)
    return ratio(met, known)


def ticks_done(window: str = RATE) -> str:
    """Ticks that were done, as a share of those that were due, about 0..1."""
    done = f"sum by ({BY_TARGET}) (rate({series('tick_duration_seconds_count')}[{window}]))"
    return f"{done} * {gauge('tick_interval_seconds')}"


def errors(by: str) -> str:
    """Errors of the targets and of the process itself, whose target is empty; else ``none`` 0."""
    one = f'autoscaler_errors_total{{{NAMESPACE}, target=~"$target|"}}'
    none = 'label_replace(vector(0), "port", "none", "", "")'
    return f"sum by ({by}) ({_grown(one, RATE)}) or on() {none}"
