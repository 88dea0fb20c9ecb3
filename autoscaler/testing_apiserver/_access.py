"""Who may do what: tokens, users and their rules."""

from dataclasses import dataclass

from autoscaler.testing_apiserver._status import ApiError, details, qualified


@dataclass(frozen=True, slots=True)
class Rule:
    """What is permitted; ``*`` stands for everything. Resources as in ``deployments/scale``.

    ``names`` restricts it to objects of these names, as RBAC's ``resourceNames`` does; empty: any.
    What names no object, such as creating or listing, is then not permitted.
    """

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    namespaces: tuple[str, ...] = ("*",)
    names: tuple[str, ...] = ()

    def permits(self, verb: str, group: str, resource: str, namespace: str, name: str) -> bool:
        """Whether it does; ``name`` "": of the object, where the request names none."""
        if self.names and name not in self.names:
            return False
        wanted = zip(
            (self.verbs, self.groups, self.resources, self.namespaces),
            (verb, group, resource, namespace),
            strict=True,
        )
        return all("*" in allowed or value in allowed for allowed, value in wanted)


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with rules; no rule: may do nothing."""

    name: str
    rules: tuple[Rule, ...] = ()

    def may(self, verb: str, group: str, resource: str, namespace: str, name: str) -> bool:
        """Whether a rule permits it."""
        return any(rule.permits(verb, group, resource, namespace, name) for rule in self.rules)


ADMIN = User("admin", (Rule(("*",), ("*",), ("*",)),))
ANONYMOUS = User("system:anonymous")


def authenticate(header: str | None, tokens: dict[str, User]) -> User:
    """The user of an ``Authorization`` header; an unknown token is 401.

    Without one it is the user of the token "", else an anonymous one: over plain HTTP ``kubectl``
    sends no token.
    """
    if not header:
        return tokens.get("", ANONYMOUS)
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or token.strip() not in tokens:
        raise ApiError(401, "Unauthorized", "Unauthorized")
    return tokens[token.strip()]


def forbidden(
    user: User, verb: str, group: str, resource: str, namespace: str, name: str
) -> ApiError:
    """403."""
    plural = resource.partition("/")[0]
    what = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    message = (
        f'{what} is forbidden: User "{user.name}" cannot {verb} resource "{resource}" '
        f'in API group "{group}" {scope}'
    )
    return ApiError(403, "Forbidden", message, details(name, group, plural))
