"""Brings a deployment to a width before it is measured, and waits until the width is proven."""

from autoscaler.errors import ObservationError, TargetError
from autoscaler.model import SetResult, WidthStatus
from autoscaler.ports import Clock, Target

_POLL_S = 2.0
LIMIT_S = 1800.0
"""GPUStack's operator gives a resize up after about 16 minutes; then this has the answer."""


def is_at(status: WidthStatus, width: int) -> bool:
    """Whether the width is asked for, proven, and nothing is on its way."""
    return status.desired == status.effective == width and status.current and not status.resizing


def reach(target: Target, width: int, clock: Clock, limit_s: float = LIMIT_S) -> None:
    """Ask for a width once, if it is not asked for already, and return when it is proven.

    An unclear answer is read back, never sent again.

    Raises:
        TargetError: refused, failed, or unreadable at the start.
        ObservationError: not proven within ``limit_s`` seconds.
    """
    status = target.read()
    if is_at(status, width):
        return
    last = status.detail
    if status.desired != width:
        outcome = target.set_width(width, status.desired)
        if outcome.result not in (SetResult.APPLIED, SetResult.AMBIGUOUS):
            raise TargetError(f"width {width}: {outcome.result.value}: {outcome.detail}")
        last = outcome.detail
    started_s = clock.now_s()
    while clock.now_s() - started_s < limit_s:
        clock.sleep(_POLL_S)
        try:
            status = target.read()
        except TargetError as error:  # a resizing engine answers 503 for a minute and more
            last = str(error)
            continue
        if is_at(status, width):
            return
        gone_wrong = status.failure or status.refusal
        if gone_wrong:
            raise TargetError(f"width {width}: {gone_wrong}")
        last = status.detail
    raise ObservationError(f"width {width}: must be proven within {limit_s:g} s; last: {last}")
