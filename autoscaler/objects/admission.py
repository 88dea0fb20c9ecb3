"""Which objects are gone by, and why others are not. Pure but for the files that specs name.

The file has precedence over objects. Among objects, those that steer already keep what they
steer; then the older comes first. A spec that is refused leaves the one before it in force.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.objects.resource import WidthAutoscaler
from autoscaler.objects.spec import Terms, resolved
from autoscaler.settings import TargetSettings

INVALID, TAKEN = "invalid_spec", "already_steered"


@dataclass(frozen=True, slots=True)
class Admitted:
    """An object that is gone by: in which generation, and as which target."""

    uid: str
    generation: int
    settings: TargetSettings


@dataclass(frozen=True, slots=True)
class Refused:
    """A spec that is not gone by: a stable code, and a message for people."""

    generation: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of all objects, by ``namespace/name``; one may be in both for a while."""

    admitted: Mapping[str, Admitted]
    refused: Mapping[str, Refused]
    warnings: tuple[str, ...] = ()


def admit(
    declared: Sequence[TargetSettings],
    objects: Mapping[str, WidthAutoscaler],
    before: Mapping[str, Admitted],
    terms: Terms,
) -> Admission:
    """Decide about every object.

    Args:
        declared: the file's targets.
        objects: by ``namespace/name``.
        before: what was gone by until now.
        terms: what specs are resolved with.
    """
    admitted: dict[str, Admitted] = {}
    refused: dict[str, Refused] = {}
    warnings: list[str] = []
    wanted: dict[str, Admitted] = {}
    for key, one in objects.items():
        made = resolved(one, terms)
        if made.settings is None:
            refused[key] = Refused(one.generation, INVALID, "; ".join(made.problems))
        else:
            wanted[key] = Admitted(one.uid, one.generation, made.settings)
            warnings += made.warnings
    known = {key: one for key, one in before.items() if key in objects}
    held = {key: one for key, one in known.items() if one.uid == objects[key].uid}
    staying = {key for key, one in held.items() if _stays(one, wanted.get(key))}
    for key in sorted(objects, key=lambda k: (k not in staying, objects[k].created, k)):
        choice = wanted.get(key)
        if choice is not None:
            objection = _objection(choice.settings, declared, admitted)
            if objection is None:
                admitted[key] = choice
                continue
            code, rule = objection
            refused[key] = Refused(choice.generation, code, f"WidthAutoscaler {key}: {rule}")
        earlier = held.get(key)
        if earlier is not None and _objection(earlier.settings, declared, admitted) is None:
            admitted[key] = earlier
    return Admission(admitted, refused, tuple(warnings))


def _stays(earlier: Admitted, wanted: Admitted | None) -> bool:
    """Whether the object still steers what it steers: a spec that is refused changes nothing."""
    return wanted is None or earlier.settings.steers_same_as(wanted.settings)


def _objection(
    target: TargetSettings, declared: Sequence[TargetSettings], admitted: Mapping[str, Admitted]
) -> tuple[str, str] | None:
    """Code and rule why it cannot be gone by beside the others; None: it can."""
    others = [(f"target {other.name} of the configuration file", other) for other in declared]
    others += [(f"WidthAutoscaler {key}", one.settings) for key, one in admitted.items()]
    for name, other in others:
        if target.steers_same_as(other):
            return TAKEN, f"spec.target: must not be steered by {name} too"
        if target.hears_same_as(other):
            rule = f"spec.source: must select the signals of its own role; got those of {name}"
            return INVALID, rule
    return None
