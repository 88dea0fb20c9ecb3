"""Whether enough is known for a smaller width to rest upon.

What other autoscalers do on missing data differs, and often it is a scale-down. Here every policy
asks for no smaller width than the present one while the time to first token or the queue is
unknown, unless it is known that there is nothing to do.
"""

from autoscaler.model import Observation, Proposal


def missing(obs: Observation) -> str | None:
    """What a smaller width would have to rest upon and is not known; None: all is known.

    A p95 TTFT missing for want of requests is idleness where ``obs.idle`` says so, else blindness.
    """
    metrics = obs.metrics
    if metrics.queue_depth.value is None:
        return f"queue depth unknown ({metrics.queue_depth.status})"
    if metrics.ttft_p95_s.value is None and not obs.idle:
        return f"p95 TTFT unknown ({metrics.ttft_p95_s.status})"
    return None


def grounded(proposal: Proposal, obs: Observation) -> Proposal:
    """The proposal, or the present width in place of a smaller one that rests on nothing."""
    if proposal.width >= obs.width.present:
        return proposal
    unknown = missing(obs)
    if unknown is None:
        return proposal
    return Proposal(
        obs.width.present, "missing_data", f"no shrink: {unknown}; else: {proposal.reason}"
    )
