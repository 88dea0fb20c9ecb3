"""The exception tree, named by who must act.

    AutoscalerError
      ConfigError             a file must change: key, rule, value received
      TraceError              a trace must change: file:line, rule, value received
      ObservationError        no usable answer this tick: hold, count, go on
      TargetError
        TargetConflict        somebody else moved the width: read again next tick
        TargetRefused         the operator refused the width: hold until something changes
        TargetForbidden       permissions are wrong: report, not ready

Adapters translate library errors into these with ``raise ... from``; no library
exception crosses a port. ``loop.py`` alone catches ``AutoscalerError``.
"""


class AutoscalerError(Exception):
    """Anything this package raises on purpose."""


class ConfigError(AutoscalerError):
    """A configuration, policy, profile or scenario is unusable until a person edits it."""


class TraceError(AutoscalerError):
    """A trace is unusable; the message starts with ``file:line``."""


class ObservationError(AutoscalerError):
    """A source gave no usable answer this tick."""


class TargetError(AutoscalerError):
    """A target could not be read or written."""


class TargetConflict(TargetError):
    """The width is no longer what the write was conditional on."""


class TargetRefused(TargetError):
    """The operator refused the width for good."""


class TargetForbidden(TargetError):
    """The credentials do not permit the call."""
