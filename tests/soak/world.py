"""A deployment and its engines under a load, on which everything goes wrong that may."""

from dataclasses import dataclass, fields, replace

from autoscaler.errors import ObservationError, TargetConflict, TargetError
from autoscaler.model import (
    WRITER,
    Capabilities,
    Layer,
    Metrics,
    SetOutcome,
    SetResult,
    Signal,
    SignalStatus,
    Tristate,
    WidthStatus,
)

TICK_S = 5.0
EPOCH_S = 1.7e9
"""Unix time at which a world begins."""
LATTICE = (1, 2, 3, 4, 6, 8, 10, 12, 16)
GPUS_PER_WIDTH = 2
PER_WIDTH_RPS = 5.0
LATE_S = 60.0
"""The API server drops a request after so long: no write takes effect later than that."""
REPAIR_S = 900.0
"""After so long somebody looks after a resize that is stuck."""
BOOT_S = 60.0

_SIGNALS = tuple(f.name for f in fields(Metrics) if f.name != "window_s")


class Killed(BaseException):
    """The process ends in the middle of a write."""


@dataclass(slots=True)
class Operation:
    """What the operator is at: towards ``width``, over at ``due_s``, with that end."""

    width: int
    due_s: float
    end: str  # ok, fail, refuse, stuck
    ours: bool
    began_s: float


class World:
    """The deployment as it really is, its load, and the clock of all."""

    def __init__(self, luck, faults, *, lattice, carrier):
        self.luck, self.faults = luck, faults
        self.lattice, self.carrier = LATTICE if lattice else None, carrier
        self.now_s = 0.0
        self.desired = self.effective = self.stable = 4
        self.generation = 1
        self.incarnation = 1
        self.writer = ""
        self.operation = None
        self.failure = self.refusal = self.pause = None
        self.text = None
        self.late = None  # a write of ours that takes effect later: due, width, generation, note
        self.configured_pause = None
        self.disturbances = 0
        self.rate_rps, self.queue = 15.0, 0.0
        self.steady_rps = None
        self.ended_ours_s = None  # when our last operation was over

    def advance(self):
        """Let a tick's time pass."""
        self.now_s += TICK_S
        self._serve()
        late = self.late
        if late is not None and self.now_s >= late[0]:
            self.late = None
            if self.generation == late[2]:
                self.put(late[1], WRITER, late[3])
        operation = self.operation
        if operation is not None and self.now_s >= operation.due_s:
            self._over(operation)
        if self.refusal is not None and self.luck.chance(0.01):
            self.refusal = None
            self.disturbances += 1
            self._begin(self.desired, "ok", ours=False)

    def _serve(self):
        if self.steady_rps is not None:
            self.rate_rps = self.steady_rps
        else:
            drift = 4.0 * (self.luck.share() - 0.5) + 0.02 * (25.0 - self.rate_rps)
            self.rate_rps = min(max(self.rate_rps + drift, 0.0), 90.0)
        excess = self.rate_rps - PER_WIDTH_RPS * (self.effective or 0)
        self.queue = min(max(self.queue + excess * TICK_S, 0.0), 2_000.0)

    def put(self, width, writer, note=None):
        """Somebody sets the width."""
        self.desired, self.writer = width, writer
        self.generation += 1
        self.ended_ours_s = None
        if note is not None:
            self.text = note
        self.failure = self.refusal = None
        faults, end = self.faults, "ok"
        if width != self.effective:
            bad = (
                ("resizes_fail", "fail"),
                ("resizes_refused", "refuse"),
                ("resizes_stuck", "stuck"),
            )
            end = next((end for name, end in bad if faults.on(name)), "ok")
        self._begin(width, end, ours=writer == WRITER)

    def _begin(self, width, end, *, ours):
        takes_s = 0.0 if width == self.effective else 10.0 + 50.0 * self.luck.share()
        takes_s = REPAIR_S if end == "stuck" else takes_s
        self.operation = Operation(width, self.now_s + takes_s, end, ours, self.now_s)

    def _over(self, operation):
        if operation.end == "stuck" and self.luck.chance(0.5):
            self.replaced()
            return
        self.operation = None
        if operation.ours and operation.end != "stuck":
            self.ended_ours_s = self.now_s
        if operation.end == "fail":
            self.failure = "the engine gave up"
        elif operation.end == "refuse":
            self.refusal = "not on these nodes"
        else:
            self.effective = self.stable = operation.width

    def replaced(self):
        """The instance is replaced by a new one, which boots at the width of the spec."""
        self.incarnation += 1
        self.effective = self.failure = self.refusal = None
        self.operation = Operation(self.desired, self.now_s + BOOT_S, "ok", False, self.now_s)

    def rank_lost(self):
        """A rank dies; the rest serves on, and it comes back."""
        if self.operation is None and self.effective is not None and self.effective > 1:
            self.effective -= 1
            self.disturbances += 1
            due_s = self.now_s + 30.0 + 200.0 * self.luck.share()
            self.operation = Operation(self.desired, due_s, "ok", False, self.now_s)

    def rival(self, width):
        """Somebody else sets the width."""
        if width != self.desired:
            self.put(width, self.luck.one_of(("kubectl", "gitops", "")))

    def capabilities(self):
        """What is possible just now."""
        high, shrink, free = 16, Tristate.YES, None
        if self.faults.on("less_possible"):
            high, shrink = 8, Tristate.UNKNOWN
        if self.faults.on("no_gpus"):
            free, shrink = 3, Tristate.NO
        return Capabilities(1, high, self.lattice, shrink, GPUS_PER_WIDTH, free_gpus=free)

    def status(self):
        """A reading as it would be if reading worked."""
        operation, layers = self.operation, ()
        stuck = operation is not None and operation.end == "stuck"
        if stuck:
            layers = (Layer("allocated", self.stable),)
        just_written = operation is not None and self.now_s - operation.began_s < 1.0
        return WidthStatus(
            desired=self.desired,
            effective=self.effective,
            stable=self.stable,
            generation=self.generation,
            observed_generation=self.generation - (1 if just_written else 0),
            incarnation=str(self.incarnation),
            layers=layers,
            refusal=self.refusal,
            failure=self.failure,
            resizing=operation is not None and not stuck and operation.width != self.effective,
            writer=self.writer,
            pause=self.pause,
        )

    def metrics(self):
        """What the engine shows, as far as the faults let it."""
        faults = self.faults
        if faults.on("source_down"):
            raise ObservationError("connection refused")
        served = min(self.rate_rps, PER_WIDTH_RPS * (self.effective or 0))
        wait_s = self.queue / max(served, 0.1)
        shown = {
            "ttft_p95_s": Signal(0.3 + wait_s),
            "ttft_p95_penalised_s": Signal(0.3 + wait_s),
            "ttft_observations": Signal(round(served * 30.0)),
            "queue_depth": Signal(float(int(self.queue))),
            "queue_wait_s": Signal(wait_s),
            "running": Signal(float(round(served * 2))),
            "arrival_rps": Signal(self.rate_rps),
            "completion_rps": Signal(served),
        }
        if served == 0:
            shown["ttft_p95_s"] = Signal(None, SignalStatus.NO_OBSERVATIONS)
        if faults.on("signals_top_bucket"):
            shown["ttft_p95_s"] = Signal(None, SignalStatus.TOP_BUCKET, 80.0)
        if faults.on("signals_silent"):
            shown["ttft_p95_s"] = Signal(None, SignalStatus.NO_OBSERVATIONS)
            shown["ttft_observations"] = Signal(0.0)
        if faults.on("one_signal_missing"):
            shown[self.luck.one_of(tuple(shown))] = Signal(None, SignalStatus.FEW_SAMPLES)
        for name, status in _BLIND:
            if faults.on(name):
                shown = dict.fromkeys(_SIGNALS, Signal(None, status))
        return Metrics(30.0, **shown)


_BLIND = (
    ("signals_missing", SignalStatus.NO_SERIES),
    ("signals_nan", SignalStatus.NON_FINITE),
    ("signals_stale", SignalStatus.STALE),
)


class Clock:
    """One process's clock: it starts anywhere, and the world's time passes on it."""

    def __init__(self, world, offset_s):
        self.world, self.offset_s = world, offset_s

    def now_s(self):
        return self.world.now_s + self.offset_s

    def epoch_s(self):
        return EPOCH_S - self.offset_s

    def sleep(self, duration_s):
        raise AssertionError("the soak ticks by itself")


class Target:
    """The deployment as one process sees it; ``ledger`` is asked about each write."""

    def __init__(self, world, ledger):
        self.world, self.ledger = world, ledger
        self.keeper = None
        self.killing = False
        self._read = self._last = None
        self._read_text = world.text

    def read(self):
        world, faults = self.world, self.world.faults
        if faults.on("target_down"):
            raise TargetError("connection refused")
        status = world.status()
        old = self._last
        behind = old is not None and old.generation != world.generation
        if behind and self.keeper.recalled and faults.on("read_lags"):
            status = old  # a cache, behind by as long as the spell lasts
        elif faults.on("width_unproven") and world.luck.chance(0.7):
            status = replace(status, effective=None)
        else:
            self._last, self._read_text = status, world.text
        self._read = status
        return status

    def capabilities(self):
        can = self.world.capabilities()
        self.ledger.saw(self._read, can)
        return can

    def set_width(self, width, expected):
        return self._set(width, expected, None)

    def _set(self, width, expected, note):
        world, faults = self.world, self.world.faults
        self.ledger.asked(width, expected, self._read)
        if self.killing:
            self.killing = False
            applied = world.luck.chance(0.5) and world.generation == self._read.generation
            if applied:
                world.put(width, WRITER, note)
            self.ledger.killed(width, expected, applied=applied)
            raise Killed
        if faults.on("forbidden"):
            return self._answer(width, expected, SetResult.FORBIDDEN)
        if faults.on("conflict") or world.generation != self._read.generation:
            return self._answer(width, expected, SetResult.CONFLICT)
        if faults.on("refused"):
            return self._answer(width, expected, SetResult.REFUSED)
        if faults.on("ambiguous_late"):
            world.late = world.now_s + LATE_S * world.luck.share(), width, world.generation, note
            return self._answer(width, expected, SetResult.AMBIGUOUS)
        if faults.on("ambiguous_lost"):
            return self._answer(width, expected, SetResult.AMBIGUOUS)
        self.ledger.applying(width)
        world.put(width, WRITER, note)
        if faults.on("ambiguous_applied"):
            return self._answer(width, expected, SetResult.AMBIGUOUS)
        if faults.on("write_raises"):
            self._answer(width, expected, SetResult.AMBIGUOUS)
            raise TargetError("connection reset")
        return self._answer(width, expected, SetResult.APPLIED)

    def _answer(self, width, expected, result):
        self.ledger.answered(width, expected, result)
        generation = self.world.generation if result is SetResult.APPLIED else None
        return SetOutcome(result, generation)

    def recall(self):
        if self.world.faults.on("memory_unkept") and self.world.luck.chance(0.5):
            raise TargetError("memory unreadable")
        text = self._read_text if self.world.carrier else self.world.text
        self.ledger.recalling(text)
        return text

    def remember(self, text):
        if self.world.faults.on("memory_conflict"):
            self.ledger.kept(False)
            raise TargetConflict("another has kept one since")
        if self.world.faults.on("memory_unkept"):
            self.ledger.kept(False)
            raise TargetError("not kept")
        self.world.text = self._read_text = text
        self.ledger.kept(True)


class CarryingTarget(Target):
    """One that keeps the memory with its width."""

    def set_width(self, width, expected, note=None):
        return self._set(width, expected, note)


class Place:
    """Where the memory is kept if not with the width."""

    def __init__(self, target):
        self.recall, self.remember = target.recall, target.remember
