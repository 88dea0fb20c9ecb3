"""What has to hold at every tick, kept by a book of its own: not by asking the controller.

Where the controller may know less than the book (a memory that could not be kept, a write whose
answer never came), the book forgets as well: it demands what was promised, not more.
"""

from collections import Counter, deque

from autoscaler.model import WRITER, SetResult, Tristate
from autoscaler.window import TIME_TOLERANCE_S

HOUR_S = 3600.0
FORBIDDEN_S = 30.0
REFUSED_S = 600.0
ROUNDING_S = 0.01
"""Instants are kept to the millisecond, in two places."""


class Broken(AssertionError):
    """A promise was broken."""


class Ledger:
    """Follows one world through all its processes."""

    def __init__(self, world, params, patience):
        self.world, self.params, self.patience = world, params, patience
        self.counts = Counter()
        self.unkept = False
        self._asked = self._generation = self._disturbances = 0
        self._metrics = self._capabilities = None
        self._pending = None  # from, to, since: asked for, no answer
        self._forbidden_s = None
        self._foreign_s = None
        self._known = None  # the desired width as the controller knows it
        self._incarnation = None
        self.forget()

    def forget(self):
        """What a process without a memory does not know."""
        self._direction, self._reversals = 0, deque()
        self._wrote_s = self.world.ended_ours_s = None
        self._pending = self._foreign_s = None
        self._refused, self._situation = {}, None

    def began(self):
        """A new process."""
        self._forbidden_s = self._known = self._incarnation = None
        self.counts["processes"] += 1

    def recalling(self, text):
        """A process takes up the memory."""
        if self.unkept or text is None:
            self.forget()
        self.unkept = False

    def kept(self, kept):
        self.unkept = not kept
        self.counts["memories kept" if kept else "memories not kept"] += 1

    def measured(self, metrics):
        """What this tick's source shows; None: nothing."""
        self._metrics = metrics
        self._asked = 0

    def saw(self, status, capabilities):
        """What is read of the width, before anything is decided."""
        world = self.world
        if world.disturbances != self._disturbances:
            # A rank that comes back is a resize to the controller, in whichever direction.
            self._disturbances, self._direction = world.disturbances, 0
        replaced = self._incarnation not in (None, status.incarnation)
        self._capabilities, self._incarnation = capabilities, status.incarnation
        situation = (status.desired, status.effective, status.incarnation, capabilities)
        if situation != self._situation:
            self._refused.clear()
            self._situation = situation
        if status.generation < self._generation:
            return  # older than our own last write
        pending = self._pending
        if pending is None:
            if self._known not in (None, status.desired):
                self._moved(status, foreign=not replaced)
        elif replaced or status.desired != pending[0]:
            self._pending = None
            self._moved(status, foreign=not replaced and status.desired != pending[1])
        elif self.world.now_s - pending[2] >= self.patience.ambiguous_hold_s - TIME_TOLERANCE_S:
            self._pending = None
        self._known = status.desired

    def _moved(self, status, *, foreign):
        self._direction = 0
        if foreign and status.writer != WRITER:
            self._foreign_s = self.world.now_s
            self.counts["foreign writes seen"] += 1

    def _need(self, kept, promise, *facts):
        if not kept:
            raise Broken(f"{promise}: {facts} at {self.world.now_s:g} s")

    def asked(self, width, expected, read):
        """The loop asks for a width, having read ``read``."""
        self.counts["asked"] += 1
        now_s, params, can = self.world.now_s, self.params, self._capabilities
        self._asked += 1
        self._need(self._asked == 1, "one write a tick", width)
        self._need(type(width) is int, "a whole width", width)
        self._need(params.min_width <= width <= params.max_width, "configured bounds", width)
        self._need(can.permits(width), "the target's bounds and lattice", width, can)
        gpus = width * can.gpus_per_width
        self._need(gpus <= params.max_gpus, "the GPU budget", width, gpus)
        self._need(expected == read.desired, "conditional on what was read", expected, read)
        self._need(width != read.desired, "no write of what is there", width)
        self._need(read.desired != 0, "nothing while switched off", width)
        self._need(self._pending is None, "no blind resend", width, self._pending)
        self._no_shrink_on_missing_data(width, read)
        self._need(not read.resizing, "nothing in flight", width, read)
        known = read.effective if read.effective is not None else read.stable
        self._need(
            read.failure is not None or known == read.desired or width == known,
            "written from a width that serves, or back to it",
            width,
            read,
        )
        for switch in (read.pause, self.world.configured_pause):
            self._paused(switch, width, read)
        refused_s = self._refused.get(width)
        waited = (
            refused_s is not None
            and width > read.desired
            and now_s - refused_s >= REFUSED_S - ROUNDING_S
        )
        self._need(refused_s is None or waited, "no refused width again", width)
        self._need(
            self._forbidden_s is None or now_s - self._forbidden_s >= FORBIDDEN_S - ROUNDING_S,
            "no write soon after 403",
            width,
        )
        held = self._foreign_s
        self._need(
            held is None or now_s - held >= params.override_hold_s - ROUNDING_S,
            "what others set is respected",
            width,
            held,
        )
        if width != read.present:
            self._patient(width, read)

    def _no_shrink_on_missing_data(self, width, read):
        if width >= read.present:
            return
        metrics = self._metrics
        queue, ttft = metrics.queue_depth.value, metrics.ttft_p95_s.value
        none_came = metrics.arrival_rps.value in (0, None) and not metrics.running.value
        self._need(queue is not None, "no shrink without the queue", width)
        self._need(ttft is not None or (queue == 0 and none_came), "no shrink without TTFT", width)
        self._need(read.effective is not None, "no shrink from an unproven width", width, read)
        self._need(self._capabilities.can_shrink is Tristate.YES, "no shrink it cannot do", width)

    def _paused(self, switch, width, read):
        if switch is None:
            return
        up, down = switch != "down", switch != "up"
        self._need(not (up and width > read.present), "paused", switch, width)
        self._need(not (down and width < max(read.present, read.desired)), "paused", switch, width)

    def _patient(self, width, read):
        """Cool-downs, settling and the flap budget, counted from our own resizes alone."""
        params, now_s = self.params, self.world.now_s
        towards = (width > read.present) - (width < read.present)
        cooldown_s = params.cooldown_up_s if towards > 0 else params.cooldown_down_s
        for since_s in (self._wrote_s, self.world.ended_ours_s):
            self._need(
                since_s is None or now_s - since_s >= max(cooldown_s, params.settle_s) - ROUNDING_S,
                "cool-downs and settling",
                width,
                since_s,
            )
        while self._reversals and now_s - self._reversals[0] >= HOUR_S - ROUNDING_S:
            self._reversals.popleft()
        self._need(
            towards * self._direction >= 0 or len(self._reversals) < params.max_reversals_per_hour,
            "the flap budget",
            width,
            tuple(self._reversals),
        )

    def applying(self, width):
        """A write of ours is about to take effect."""
        operation = self.world.operation
        busy = operation is not None and operation.end != "stuck"
        moving = busy and operation.width != self.world.effective
        self._need(not moving, "one operation in flight", width, operation)

    def answered(self, width, expected, result):
        now_s = self.world.now_s
        self.counts[f"write {result.value}"] += 1
        if result is SetResult.APPLIED:
            towards = (width > expected) - (width < expected)
            if towards * self._direction < 0:
                self._reversals.append(now_s)
            self._direction, self._known, self._wrote_s = towards, width, now_s
            self._forbidden_s = None
            self._generation = self.world.generation
            # The note beside the width is there exactly if the width is.
            self.unkept = self.unkept and not self.world.carrier
        elif result is SetResult.AMBIGUOUS:
            self._pending = expected, width, now_s
            self.unkept = self.unkept or self.world.carrier
        elif result is SetResult.FORBIDDEN:
            self._forbidden_s = now_s
        elif result is SetResult.REFUSED:
            self._forbidden_s = None
            self._refused[width] = now_s
            self.unkept = True  # until the next memory says so

    def killed(self, width, expected, *, applied):
        """The process ends with its write under way."""
        self.counts["killed while writing"] += 1
        self._direction = 0
        known = applied or not self.world.carrier
        self._pending = (expected, width, self.world.now_s) if known else None
