"""What a check says of a target on an API server. Rules only: facts in, findings out."""

from autoscaler.cluster.capacity import Room
from autoscaler.errors import ConfigError
from autoscaler.findings import Finding, Level
from autoscaler.model import SetOutcome, SetResult
from autoscaler.targets import _arguments
from autoscaler.targets._role import Role

_FLAG = _arguments.MAX_WIDTH[0]


def rehearsed(answer: SetOutcome, width: int, grant: str) -> Finding:
    """What the API server's answer to a dry run of a write says.

    Args:
        answer: to the dry run.
        width: that was asked for.
        grant: what a role has to permit, for the cure.
    """
    tried, said = f"a dry run of width {width}", answer.detail
    if answer.result is SetResult.APPLIED:
        return Finding(Level.OK, "permission", f"{tried} is permitted")
    if answer.result is SetResult.FORBIDDEN:
        return Finding(Level.ERROR, "permission", f"{tried}: {said}", f"grant {grant}")
    if answer.result is SetResult.REFUSED:
        cure = "let admission permit it, or keep guards.max_width below what it permits"
        return Finding(Level.ERROR, "admission", f"{tried}: {said}", cure)
    if "(gone)" in said:
        cure = "name an object that has a scale subresource: its CRD may not declare one"
        return Finding(Level.ERROR, "scale subresource", f"{tried}: {said}", cure)
    if answer.result is SetResult.CONFLICT:
        cure = "run the check again: somebody changed the object meanwhile"
        return Finding(Level.WARNING, "permission", f"{tried}: {said}", cure)
    cure = "let the API server and its admission webhooks answer within target.timeout_s"
    return Finding(Level.ERROR, "permission", f"{tried}: {said}", cure)


def capacity(room: Room, gpus_per_width: int) -> Finding:
    """Whether the cluster has GPUs for one more unit of width."""
    if room.gpus is None:
        cure = (
            "grant list on nodes, pods and localqueues and get on clusterqueues, or live with "
            "growth that nobody looks ahead for"
        )
        return Finding(Level.WARNING, "capacity", room.detail, cure)
    text = f"{room.gpus} more GPUs can be had: {room.detail}"
    if room.gpus < gpus_per_width:
        cure = "expect no growth before there are: it is held where it could not be undone"
        return Finding(Level.WARNING, "capacity", text, cure)
    return Finding(Level.OK, "capacity", text)


def elastic_limit(role: Role, engine_max: int, *, version_known: bool) -> Finding:
    """Whether the engine can serve the width that its role asks for, and grow beyond it.

    Args:
        role: as read.
        engine_max: highest width that the engine takes, as far as is known.
        version_known: whether the engine's version is.
    """
    try:
        declared = _arguments.number(role.arguments, _arguments.MAX_WIDTH)
    except ConfigError as error:
        return Finding(Level.ERROR, "width limit", str(error), f"write a number behind {_FLAG}")
    where = f"{_FLAG} {declared}" if declared is not None else f"no {_FLAG} in extraArgs"
    if role.width > engine_max:
        cure = f"deploy the engine anew with {_FLAG} {role.width} or more, or at a lower width"
        text = f"width {role.width} is above the engine's limit {engine_max}: {where}"
        return Finding(Level.ERROR, "width limit", text, cure)
    if declared is None and not version_known:
        cure = f"deploy with {_FLAG}, or set target.vllm_version so that the limit is known"
        text = f"{where}: from vLLM 0.30 on it can then never grow beyond its first width"
        return Finding(Level.WARNING, "width limit", text, cure)
    if role.width == engine_max:
        cure = f"deploy the engine anew with a larger {_FLAG}"
        text = f"width {role.width} is the engine's limit already: {where}"
        return Finding(Level.WARNING, "width limit", text, cure)
    return Finding(Level.OK, "width limit", f"{role.width} of {engine_max} at most: {where}")
