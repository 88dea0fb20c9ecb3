"""A policy that is content with the width there is, for a reason that it was given."""

from dataclasses import dataclass

from autoscaler.model import Proposal


@dataclass(frozen=True, slots=True)
class Params:
    code: str = "content"


class Says:
    def __init__(self, params):
        self.params = params

    def propose(self, obs):
        return Proposal(obs.width.present, self.params.code, "as it was told")

    def state(self):
        return {}


def build(params, context):
    return Says(params)
