"""The objects: versions, generations, conflicts and the history that watches read."""

import copy
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from autoscaler.ports import Clock
from autoscaler.testing_apiserver._event_rules import event_violations
from autoscaler.testing_apiserver._managed import managed_fields
from autoscaler.testing_apiserver._patch import Owners, leaves
from autoscaler.testing_apiserver._resources import BUILT_IN, Resource, from_crd, with_defaults
from autoscaler.testing_apiserver._schema import pruned, unknown, violations
from autoscaler.testing_apiserver._status import (
    ApiError,
    Cause,
    Json,
    details,
    invalid,
    qualified,
)

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
_FIXED = ("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion")

Change = Callable[[Json], Json]


@dataclass(frozen=True, slots=True)
class Happening:
    """One event of the history."""

    version: int
    type: str
    resource: Resource
    namespace: str
    object: Json


class Store:
    """Objects by resource, namespace and name. Safe for several threads.

    Args:
        clock: for time stamps; a manual one makes them repeatable.
    """

    def __init__(self, clock: Clock) -> None:
        self.resources = {(r.api_version, r.plural): r for r in BUILT_IN}
        self.version = 200
        self.oldest = 0
        self.changed = threading.Condition(threading.RLock())
        self._clock, self._start_s = clock, clock.now_s()
        self._objects: dict[tuple[Resource, str, str], Json] = {}
        self._owners: dict[str, Owners] = {}
        self._wrote_at: dict[tuple[str, str], str] = {}  # by uid and manager
        self.history: list[Happening] = []

    def install(self, crd: Json) -> None:
        """Serve the resources of a CustomResourceDefinition."""
        for resource in from_crd(crd):
            self.resources[resource.api_version, resource.plural] = resource

    def resource(self, api_version: str, plural: str) -> Resource:
        """A kind that is served."""
        found = self.resources.get((api_version, plural))
        if found is None:
            message = "the server could not find the requested resource"
            raise ApiError(404, "NotFound", message, {})
        return found

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """One object (a copy)."""
        with self.changed:
            return copy.deepcopy(self._found(resource, namespace, name))

    def list(self, resource: Resource, namespace: str) -> list[Json]:
        """All objects of one namespace, or with "" of all of them (copies), by name."""
        with self.changed:
            found = [
                obj
                for (kind, where, _), obj in sorted(
                    self._objects.items(), key=lambda item: item[0][1:]
                )
                if kind is resource and namespace in ("", where)
            ]
            return copy.deepcopy(found)

    def create(
        self,
        resource: Resource,
        namespace: str,
        given: Json,
        manager: str = "",
        *,
        dry: bool = False,
        strict: bool = False,
    ) -> Json:
        """Create an object; ``strict``: a field that its schema does not know is an error."""
        given = self._pruned(resource, given, strict=strict)
        obj = with_defaults(copy.deepcopy(given), resource.defaults)
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
        metadata = dict(obj.get("metadata") or {})
        metadata["name"] = self._name(resource, metadata)
        if resource.namespaced:
            metadata["namespace"] = namespace
        elif resource.kind == "Namespace":
            labels = {"kubernetes.io/metadata.name": metadata["name"]}
            metadata["labels"] = {**labels, **metadata.get("labels", {})}
        key = (resource, namespace, metadata["name"])
        if resource.custom:
            obj.pop("status", None)  # a subresource of its own
        self._validate(resource, metadata["name"], {**obj, "metadata": metadata}, None)
        with self.changed:
            if key in self._objects:
                where = qualified(resource.plural, resource.group)
                message = f'{where} "{metadata["name"]}" already exists'
                about = details(metadata["name"], resource.group, resource.plural)
                raise ApiError(409, "AlreadyExists", message, about)
            metadata["uid"] = str(uuid.uuid4())
            metadata["creationTimestamp"] = self._now()
            if resource.generations:
                metadata["generation"] = 1
            obj["metadata"] = metadata
            self._own(obj, {}, manager)
            return copy.deepcopy(obj) if dry else self._keep(key, obj, "ADDED")

    def change(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        how: Change,
        *,
        subresource: str = "",
        manager: str = "",
        dry: bool = False,
        strict: bool = False,
    ) -> Json:
        """Change an object by a function of it; returns it as it is then.

        ``how`` may set ``metadata.resourceVersion`` to the one that it was meant for.
        """
        with self.changed:
            before = self._found(resource, namespace, name)
            after = self._pruned(resource, how(copy.deepcopy(before)), strict=strict)
            metadata = dict(after.get("metadata") or {})
            version = metadata.get("resourceVersion")
            if version not in (None, "", before["metadata"]["resourceVersion"]):
                raise self._stale(resource, name)
            if metadata.get("uid", before["metadata"]["uid"]) != before["metadata"]["uid"]:
                raise self._stale(resource, name)  # of an object of the same name that is no more
            for field in _FIXED:
                metadata.pop(field, None)
                if field in before["metadata"]:
                    metadata[field] = before["metadata"][field]
            if subresource == "status":
                after = {**before, "status": after.get("status")}
            elif resource.status:
                after = {**after, "status": before.get("status")}
                if after["status"] is None:
                    del after["status"]
            after["metadata"] = metadata
            after = {"kind": before["kind"], "apiVersion": before["apiVersion"], **after}
            if after == before:
                return copy.deepcopy(before)
            self._validate(resource, name, after, before)
            if resource.generations and _meant(after) != _meant(before):
                metadata["generation"] += 1
            if dry:
                return copy.deepcopy(after)
            self._own(after, before, manager)
            return self._keep((resource, namespace, name), after, "MODIFIED")

    def delete(self, resource: Resource, namespace: str, name: str) -> Json:
        """Delete an object at once; finalizers are not known here."""
        with self.changed:
            gone = self._found(resource, namespace, name)
            del self._objects[resource, namespace, name]
            self._owners.pop(gone["metadata"]["uid"], None)
            self._happened("DELETED", resource, namespace, gone)
            return gone

    def owners(self, obj: Json) -> Owners:
        """Who set each field of the object last."""
        return self._owners.get(obj["metadata"]["uid"], {})

    def compact(self) -> None:
        """Forget the history: older watches are told 410."""
        with self.changed:
            self.oldest = self.version
            self.history.clear()

    def since(self, version: int) -> Iterator[Happening]:
        """What happened after ``version``."""
        with self.changed:
            return iter([event for event in self.history if event.version > version])

    def _found(self, resource: Resource, namespace: str, name: str) -> Json:
        try:
            return self._objects[resource, namespace, name]
        except KeyError:
            where = qualified(resource.plural, resource.group)
            about = details(name, resource.group, resource.plural)
            raise ApiError(404, "NotFound", f'{where} "{name}" not found', about) from None

    def _keep(self, key: tuple[Resource, str, str], obj: Json, event: str) -> Json:
        self._objects[key] = obj
        self._happened(event, key[0], key[1], obj)
        return copy.deepcopy(obj)

    def _happened(self, event: str, resource: Resource, namespace: str, obj: Json) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(Happening(self.version, event, resource, namespace, copy.deepcopy(obj)))
        self.changed.notify_all()

    def _own(self, after: Json, before: Json, manager: str) -> None:
        had = dict(leaves(before))
        owners = self._owners.setdefault(after["metadata"]["uid"], {})
        has = dict(leaves(after))
        owners.update({path: manager for path, value in has.items() if had.get(path) != value})
        for path in set(owners) - set(has):
            del owners[path]
        uid = after["metadata"]["uid"]
        self._wrote_at[uid, manager] = self._now()
        wrote_at = {by: at for (of, by), at in self._wrote_at.items() if of == uid}
        entries = managed_fields(after["apiVersion"], owners, wrote_at)
        if entries:
            after["metadata"]["managedFields"] = entries

    def _stale(self, resource: Resource, name: str) -> ApiError:
        message = (
            f"Operation cannot be fulfilled on {qualified(resource.plural, resource.group)} "
            f'"{name}": the object has been modified; please apply your changes to the latest '
            "version and try again"
        )
        return ApiError(409, "Conflict", message, details(name, resource.group, resource.plural))

    @staticmethod
    def _pruned(resource: Resource, given: Json, *, strict: bool) -> Json:
        """What is kept of an object: a schema's unknown fields are dropped without a word."""
        if resource.schema is None:
            return given
        made: Json = pruned(resource.schema, given)
        gone = list(unknown(given, made))
        if strict and gone:
            said = ", ".join(f'unknown field "{path}"' for path in gone)
            head = f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            raise ApiError(
                400, "BadRequest", f"{head}{resource.kind}: strict decoding error: {said}"
            )
        return made

    @staticmethod
    def _validate(resource: Resource, name: str, new: Json, old: Json | None) -> None:
        causes = violations(resource.schema, new, old) if resource.schema else []
        if resource.kind == "Event" and old is None:
            causes += event_violations(new)
        if causes:
            group = resource.group if resource.custom else ""  # as recorded
            raise invalid(resource.kind, group, name, causes)

    @staticmethod
    def _name(resource: Resource, metadata: Json) -> str:
        prefix, field = str(metadata.get("generateName", "")), "metadata.generateName"
        name = str(metadata.get("name") or f"{prefix}{uuid.uuid4().hex[:5]}")
        checked = prefix.removesuffix("-") if "name" not in metadata else name
        if not re.fullmatch(_SUBDOMAIN, checked):
            field, value = (field, prefix) if "name" not in metadata else ("metadata.name", name)
            text = f'Invalid value: "{value}": {_SUBDOMAIN_RULE}'
            group = resource.group if resource.custom else ""
            raise invalid(resource.kind, group, name, [Cause("FieldValueInvalid", text, field)])
        return name

    def now(self) -> datetime:
        """The time that its time stamps are in: it begins at the same instant each time."""
        return _EPOCH + timedelta(seconds=int(self._clock.now_s() - self._start_s))

    def _now(self) -> str:
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def _meant(obj: Json) -> Json:
    """What a generation counts the versions of: all but metadata and status."""
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}
