"""What one reading of a width proves. Pure: a status in, an answer or a text for people out."""

from autoscaler.model import Layer, WidthStatus

_MEMBERS = ("admitted", "allocated", "replicas", "available", "ready", "running")


def converged(status: WidthStatus, width: int) -> bool:
    """Whether this read proves that ``width`` serves, by every layer that there is."""
    if status.desired != width or status.effective != width or status.resizing:
        return False
    if not status.current or status.failure is not None or status.refusal is not None:
        return False
    for layer in status.layers:  # noqa: SIM110  # a generator would double the cost of a steady tick
        if layer.value != width:
            return False
    return True


def blocking_layer(status: WidthStatus) -> Layer | None:
    """The outermost layer that is not at the desired width; None: all are, or there is none."""
    return next((layer for layer in status.layers if layer.value != status.desired), None)


def lacks_members(status: WidthStatus) -> bool:
    """Whether what keeps the width from being reached are Pods without a place, or not started."""
    layer = blocking_layer(status)
    return layer is not None and layer.name in _MEMBERS and layer.value is not None


def blocking(status: WidthStatus) -> str:
    """For people: the outermost layer that is not at the desired width, and where it is."""
    layer = blocking_layer(status)
    if layer is not None:
        at = "unread" if layer.value is None else f"{layer.value} of {status.desired}"
        detail = layer.detail or status.detail
        return f"waiting for layer {layer.name}: {at}" + (f" ({detail})" if detail else "")
    if status.effective != status.desired:
        at = "unread" if status.effective is None else str(status.effective)
        detail = f" ({status.detail})" if status.detail else ""
        return f"waiting for effective width {status.desired}: {at}{detail}"
    return f"waiting: {status.detail or 'the target is still at it'}"


def proof(status: WidthStatus) -> str:
    """For people: what was proven."""
    return f"width {status.effective} serves"


def known(status: WidthStatus) -> bool:
    """Whether there is a real width to decide from."""
    return status.current and (status.effective is not None or status.stable is not None)
