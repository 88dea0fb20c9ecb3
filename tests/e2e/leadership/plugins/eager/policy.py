"""One more, always: a write in every tick, since growth is what the guards never hold."""

from dataclasses import dataclass

from autoscaler.model import Proposal


@dataclass(frozen=True, slots=True)
class Params:
    step: int = 1


class Eager:
    def __init__(self, params):
        self.params = params

    def propose(self, obs):
        return Proposal(obs.width.present + self.params.step, "eager", "one more")

    def state(self):
        return {}


def build(params, context):
    return Eager(params)
