"""What the decisions for one target depend on besides what is observed.

Builds the controller from it, carries what a controller has learnt over to changed parameters, and
describes it in the decision log so that a replay can build the same one.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from autoscaler import limits, plugins, profiles
from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.convergence import Params as ConvergenceParams
from autoscaler.errors import ConfigError
from autoscaler.guards import Guards
from autoscaler.model import Slo
from autoscaler.parameters import from_mapping
from autoscaler.policy_file import PolicyChoice
from autoscaler.ports import Policy, PolicyContext
from autoscaler.profile import Profile


@dataclass(frozen=True, slots=True)
class Steering:
    """Policy and limits of one target.

    Args:
        policy: the policy that was chosen.
        slo: the objective.
        tick_s: seconds between two ticks, > 0.
        guards: the limits.
        convergence: limits of patience with a resize.
        profile: captured width curves; None: there are none.
        profile_name: what a replay finds the profile by, a shipped name or a file; None: nothing.
        epoch_s: Unix time at which the loop's clock showed 0, s; None: no wall clock. Tells equal
            settings apart in no way: it is a fact about the process.
        pause: what is paused: all, up, down; None: nothing.
        watches: whether its widths are never written; a fact about the process as well.
    """

    policy: PolicyChoice
    slo: Slo
    tick_s: float
    guards: limits.Params
    convergence: ConvergenceParams
    profile: Profile | None = None
    profile_name: str | None = None
    epoch_s: float | None = field(default=None, compare=False)
    pause: str | None = None
    watches: bool = field(default=False, compare=False)

    def build_policy(self) -> Policy:
        """A new policy.

        Raises:
            ConfigError: the policy cannot work with this profile, objective or tick.
        """
        guards = self.guards
        return self.policy.build(
            PolicyContext(
                self.slo,
                self.tick_s,
                self.profile,
                self.epoch_s,
                guards.scale_down_window_s,
                guards.settle_s,
                guards.max_reversals_per_hour,
            )
        )

    def build(self) -> Controller:
        """A new controller that has learnt nothing yet.

        Raises:
            ConfigError: as ``build_policy``.
        """
        return Controller(
            self.build_policy(),
            Guards(self.guards),
            Convergence(self.convergence),
            watches=self.watches,
            pause=self.pause,
        )

    def retune(self, controller: Controller, before: "Steering") -> None:
        """Make ``controller``, which was built from ``before``, go by this from now on.

        Cool-downs, reversals, wishes and the resize in flight are facts about the deployment and
        stay. A policy's state is the policy's own: it begins anew where anything changed that the
        policy is built from.
        """
        if self.policy_inputs != before.policy_inputs:
            controller.policy = self.build_policy()
        if self.guards != before.guards:
            controller.guards.retune(self.guards)
        controller.convergence.params = self.convergence
        controller.pause, controller.watches = self.pause, self.watches

    def describe(self, target: str) -> dict[str, Any]:
        """JSON-ready, for the decision log: what ``described`` reads."""
        return {
            "target": target,
            "policy": {
                "name": self.policy.name,
                "kind": self.policy.kind,
                "params": asdict(self.policy.params),
            },
            "slo": asdict(self.slo),
            "tick_s": self.tick_s,
            "guards": asdict(self.guards),
            "convergence": asdict(self.convergence),
            "profile": self.profile_name,
            "epoch_s": self.epoch_s,
            "pause": self.pause,
            "watches": self.watches,
        }

    @property
    def policy_inputs(self) -> tuple[Any, ...]:
        """What a policy is built from: equal ones make equal policies."""
        guards = self.guards
        patience = guards.scale_down_window_s, guards.settle_s, guards.max_reversals_per_hour
        return self.policy.kind, self.policy.params, self.slo, self.tick_s, self.profile, patience


_BEFORE = {"override_hold_s": 0.0, "fight_after": None}
"""Limits that did not exist yet when the oldest logs were recorded."""


def described(content: Mapping[str, Any], where: str) -> Steering:
    """The inverse of ``describe``.

    Args:
        content: the ``controller`` of one recorded tick.
        where: what to name in messages.

    Raises:
        ConfigError: something is missing, or is unknown here (a kind, a profile, a parameter).
    """
    for key in ("policy", "slo", "tick_s", "guards", "convergence"):
        if key not in content:
            raise ConfigError(f"{where}: controller.{key}: must be recorded; got nothing")
    chosen, profile = content["policy"], content.get("profile")
    try:
        module = plugins.find("policies", chosen["kind"])
        params = from_mapping(module.Params, chosen["params"], f"{where}: policy")
        return Steering(
            PolicyChoice(chosen["name"], chosen["kind"], params),
            from_mapping(Slo, content["slo"], f"{where}: slo"),
            content["tick_s"],
            from_mapping(limits.Params, {**_BEFORE, **content["guards"]}, f"{where}: guards"),
            from_mapping(ConvergenceParams, content["convergence"], f"{where}: convergence"),
            None if profile is None else profiles.load(profile),
            profile,
            content.get("epoch_s"),
            content.get("pause"),
            content.get("watches", False),
        )
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{where}: controller: must describe a controller; {error!r}") from error
