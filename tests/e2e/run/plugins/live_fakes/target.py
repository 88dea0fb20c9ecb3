"""A deployment in a file, whose resizes take a number of reads."""

from dataclasses import dataclass

from autoscaler.errors import ConfigError, TargetError
from autoscaler.model import Capabilities, SetOutcome, SetResult, Tristate, WidthStatus
from live_fakes import read, write


@dataclass(frozen=True, slots=True)
class Params:
    path: str
    resize_reads: int = 3
    max_width: int = 8
    api_key: str = ""


class Target:
    def __init__(self, params):
        self.params = params

    def read(self):
        state = read(self.params.path)
        if "unreadable" in state:
            raise TargetError(state["unreadable"])
        if state.get("reads_left", 0) > 0:
            state["reads_left"] -= 1
            if state["reads_left"] == 0:
                state["effective"] = state["desired"]
            write(self.params.path, state)
        said = {key: state[key] for key in ("refusal", "failure") if key in state}
        return WidthStatus(state["desired"], state["effective"], state["effective"], **said)

    def set_width(self, width, expected):
        state = read(self.params.path)
        if "answer" in state:
            return SetOutcome(SetResult(state["answer"]))
        if state["desired"] != expected:
            return SetOutcome(SetResult.CONFLICT)
        state["writes"] = [*state.get("writes", []), width]
        write(self.params.path, state | {"desired": width, "reads_left": self.params.resize_reads})
        return SetOutcome(SetResult.APPLIED)

    def capabilities(self):
        return Capabilities(1, self.params.max_width, can_shrink=Tristate.YES, gpus_per_width=2)


def build(params):
    if params.max_width < 1:
        raise ConfigError(f"max_width: must be a whole number >= 1; got {params.max_width}")
    return Target(params)
