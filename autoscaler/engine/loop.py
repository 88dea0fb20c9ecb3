"""The compiled event loop: continuous batching over ranks that step together.

One step serves every rank: each decoding request gets a token, each rank may prefill prompt
tokens up to its budget, and all wait for the slowest. A running request therefore needs no
work a step: it finishes when the step counter reaches a known value. Between two events the
decode step time is constant, so equal steps are taken in one jump. Cost: O(log slots) a request.

Not modelled: preemption and KV-cache exhaustion, prefix caching, speculative decoding.
"""

import math

import numpy as np
from numba import njit

from autoscaler.engine.layout import (
    ABORTED,
    COMPLETED,
    ITL_FINE_BINS,
    ITL_FINE_FLOOR_S,
    ITL_FINE_LOG_STEP,
    OFF_QUEUE,
    PENDING,
    REJECTED,
    SLOT_BITS,
)

_LOG_FLOOR = math.log(ITL_FINE_FLOOR_S)
_SLOT_MASK = (1 << SLOT_BITS) - 1
_DECODE_REFRESH_STEPS = 64
"""The KV term of the decode step grows by under a percent in as many steps."""


def compiled(function):
    """Compile at the first call; keep the code on disk wherever a folder for it can be written."""
    try:
        return njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # none can: in a container whose root is read-only, 5 s at each start
        return njit(nogil=True, error_model="numpy")(function)


@compiled
def _push(heap, size, key):
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if heap[parent] <= key:
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = key


@compiled
def _pop(heap, size):
    """Remove the least key of a heap of ``size`` keys (the caller has read heap[0])."""
    key = heap[size - 1]
    last = size - 1
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = key


@compiled
def _bucket(bounds, value):
    """Index of the first bound >= value; len(bounds): the +Inf bucket."""
    low = 0
    high = bounds.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if bounds[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _observe_itl(s, step_s, count, itl_bounds, itl_counts, itl_fine):
    itl_counts[_bucket(itl_bounds, step_s)] += count
    fine = int((math.log(step_s) - _LOG_FLOOR) / ITL_FINE_LOG_STEP)
    itl_fine[min(max(fine, 0), ITL_FINE_BINS - 1)] += count
    s.itl_sum_s += step_s * count
    s.output_tokens += count


@compiled
def _next_ready(s, p, ranks, arrival_s):
    """Set when the next arrival gets past its API server, which serves one at a time."""
    i = s.next_arrival
    if i >= s.known:
        s.ready_s = np.inf
        return
    server = i % p.api_servers
    start_s = max(arrival_s[i], ranks[server].api_free_s)
    s.ready_s = start_s + p.api_serial_s + p.overhead_s


@compiled
def _dispatch(s, p, ranks, link, at_s):
    """Queue the next arrival on the rank with the least load, or in turn."""
    i = s.next_arrival
    server = i % p.api_servers
    ranks[server].api_free_s = s.ready_s - p.overhead_s
    if p.round_robin == 1:
        best = s.round_robin % s.dispatch_ranks
        s.round_robin += 1
    else:
        if at_s >= s.next_refresh_s:
            for r in range(s.dispatch_ranks):
                ranks[r].seen_waiting = ranks[r].waiting
                ranks[r].seen_admitted = ranks[r].admitted
            s.next_refresh_s = at_s + p.load_refresh_s
        best = 0
        least = p.waiting_weight * ranks[0].seen_waiting + ranks[0].seen_admitted
        for r in range(1, s.dispatch_ranks):
            load = p.waiting_weight * ranks[r].seen_waiting + ranks[r].seen_admitted
            if load < least:
                least = load
                best = r
    if link[i] <= OFF_QUEUE and OFF_QUEUE - link[i] < s.dispatch_ranks:
        best = OFF_QUEUE - link[i]  # its client chose the rank
    rank = ranks[best]
    link[i] = -1
    if rank.head < 0:
        rank.head = i
    else:
        link[rank.tail] = i
    rank.tail = i
    rank.waiting += 1
    rank.seen_waiting += 1
    s.waiting += 1
    s.next_arrival = i + 1


@compiled
def _schedule(s, p, ranks, prompt_tokens, link, first_request, first_rank):
    """Fill the step's prompt budget; returns its prefill time, 0: no prompt is worked on."""
    tokens = 0
    tokens_largest = 0
    attention = 0.0
    for r in range(p.ranks):
        rank = ranks[r]
        if rank.waiting == 0 and rank.partial < 0:
            continue
        if rank.decoding == 0 and rank.partial < 0:
            # An idle rank only keeps the others company: it has no step that this one is behind.
            rank.offer = rank.waiting
        budget = p.token_budget - rank.decoding
        here = 0
        while budget > 0:
            if rank.partial >= 0:
                i = rank.partial
                done = rank.partial_done
            elif (
                rank.waiting > 0
                and rank.admitted < p.slots_per_rank
                and (p.schedule_ahead == 0 or rank.offer > 0)
            ):
                i = rank.head
                done = 0
                rank.head = link[i]
                link[i] = OFF_QUEUE - r
                rank.waiting -= 1
                rank.admitted += 1
                rank.offer -= 1
                s.waiting -= 1
            else:
                break
            left = max(prompt_tokens[i], 1) - done
            chunk = min(left, budget)
            budget -= chunk
            here += chunk
            attention += chunk * (done + 0.5 * chunk)
            if chunk == left:
                if rank.partial >= 0:
                    rank.partial = -1
                    s.partial -= 1
                first_request[s.first_tokens] = i
                first_rank[s.first_tokens] = r
                s.first_tokens += 1
            else:
                if rank.partial < 0:
                    s.partial += 1
                rank.partial = i
                rank.partial_done = done + chunk
        tokens += here
        tokens_largest = max(tokens_largest, here)
    if tokens == 0:
        return 0.0
    prefill_s = (
        p.prefill_flat_s
        + p.prefill_token_s * tokens
        + p.prefill_rank_token_s * tokens_largest
        + p.prefill_token2_s * attention
    )
    floor_s = p.prefill_floor_s
    if p.prefill_spread_s > 0.0:
        s.prefill_steps += 1
        # A hash of the count: draws that do not follow one another, and no generator to seed.
        u = math.sin(s.prefill_steps * 12.9898) * 43758.5453
        u -= math.floor(u)
        floor_s += p.prefill_spread_s * u**p.prefill_spread_power
    return max(prefill_s, floor_s)


@compiled
def _offer(p, ranks):
    """Note what the step after next may admit, as seen now; returns whether that is anything."""
    total = 0
    for r in range(p.ranks):
        rank = ranks[r]
        rank.offer = min(rank.waiting, p.slots_per_rank - rank.admitted)
        total += rank.offer
    return total > 0


@compiled
def _decode_step(s, p, ranks, decode_s):
    """Decode step time: the fullest rank's staircase, plus what reading the KV cache costs."""
    fullest = 0
    for r in range(p.ranks):
        fullest = max(fullest, ranks[r].decoding)
    return decode_s[fullest] + p.kv_token_s * s.kv_tokens / p.ranks


@compiled
def _finish_due(s, ranks, arrival_s, prompt, output, finish_s, outcome, slots, heap):
    """End the requests whose last token came with the present step."""
    while s.heap > 0 and (heap[0] >> SLOT_BITS) <= s.step:
        slot = heap[0] & _SLOT_MASK
        _pop(heap, s.heap)
        s.heap -= 1
        i = slots[slot, 0]
        rank = ranks[slots[slot, 1]]
        slots[s.free, 2] = slot
        s.free += 1
        rank.decoding -= 1
        s.decoding -= 1
        s.kv_tokens -= prompt[i] + output[i]
        _end_served(s, rank, i, arrival_s, finish_s, outcome)
        s.decode_stale = 1


@compiled
def _end_served(s, rank, i, arrival_s, finish_s, outcome):
    rank.admitted -= 1
    finish_s[i] = s.now_s
    outcome[i] = COMPLETED
    s.completed += 1
    s.e2e_sum_s += s.now_s - arrival_s[i]
    if s.closed == 1 and s.known < arrival_s.shape[0]:
        arrival_s[s.known] = s.now_s + s.turnaround_s
        s.known += 1


@compiled
def _first_tokens(
    s, ranks, arrival_s, prompt, output, first_s, finish_s, outcome, slots, heap,
    first_request, first_rank, ttft_bounds, ttft_counts,
):  # fmt: skip
    """Give the prompts that completed with the present step their first token and a slot."""
    for k in range(s.first_tokens):
        i = first_request[k]
        rank = ranks[first_rank[k]]
        first_s[i] = s.now_s
        ttft_s = s.now_s - arrival_s[i]
        ttft_counts[_bucket(ttft_bounds, ttft_s)] += 1
        s.ttft_sum_s += ttft_s
        s.prompt_tokens += prompt[i]
        s.output_tokens += 1
        if output[i] <= 1:
            _end_served(s, rank, i, arrival_s, finish_s, outcome)
            continue
        s.free -= 1
        slot = slots[s.free, 2]
        slots[slot, 0] = i
        slots[slot, 1] = first_rank[k]
        _push(heap, s.heap, ((s.step + output[i] - 1) << SLOT_BITS) | slot)
        s.heap += 1
        rank.decoding += 1
        s.decoding += 1
        s.kv_tokens += prompt[i] + 1
    s.first_tokens = 0
    s.decode_stale = 1


@compiled
def advance(
    until_s, state, physics, ranks, arrival_s, prompt, output, first_s, finish_s, outcome,
    link, slots, heap, first_request, first_rank, decode_s, ttft_bounds, ttft_counts,
    itl_bounds, itl_counts, itl_fine,
):  # fmt: skip
    """Play everything that is over by ``until_s``; a step that lasts longer stays in progress."""
    s = state[0]
    p = physics[0]
    while True:
        if s.in_step == 1:
            if s.step_end_s > until_s:
                return
            s.now_s = s.step_end_s
            s.in_step = 0
            if s.decoding > 0:
                _observe_itl(s, s.step_s, s.decoding, itl_bounds, itl_counts, itl_fine)
                s.kv_tokens += s.decoding
                s.step += 1
                _finish_due(s, ranks, arrival_s, prompt, output, finish_s, outcome, slots, heap)
            if s.first_tokens > 0:
                _first_tokens(
                    s, ranks, arrival_s, prompt, output, first_s, finish_s, outcome, slots,
                    heap, first_request, first_rank, ttft_bounds, ttft_counts,
                )  # fmt: skip
            if s.closed == 1:
                _next_ready(s, p, ranks, arrival_s)
            if s.hold == 1:
                return
        elif s.now_s > until_s:
            return  # the decode clock stands still until now_s
        if s.accepting == 1:
            while s.ready_s <= s.now_s:
                _dispatch(s, p, ranks, link, s.now_s)
                _next_ready(s, p, ranks, arrival_s)
        if s.decode_stale == 1 or s.step >= s.next_decode_refresh:
            s.decode_s = _decode_step(s, p, ranks, decode_s)
            s.decode_stale = 0
            s.next_decode_refresh = s.step + _DECODE_REFRESH_STEPS
        offered = False
        if s.waiting > 0 or s.partial > 0:
            prefill_s = _schedule(s, p, ranks, prompt, link, first_request, first_rank)
            if p.schedule_ahead == 1:
                offered = _offer(p, ranks)
            if prefill_s > 0.0:
                step_s = prefill_s
                if s.decoding > 0:
                    step_s = (
                        max(prefill_s, s.decode_s)
                        + p.mixed_share * min(prefill_s, s.decode_s)
                        + p.mixed_kv_token_s * s.kv_tokens / p.ranks
                    )
                s.step_s = step_s
                s.step_end_s = s.now_s + step_s
                s.in_step = 1
                continue
        if s.decoding > 0:
            step_s = s.decode_s
            jump = 1 if offered else (heap[0] >> SLOT_BITS) - s.step
            if p.kv_token_s > 0.0:
                jump = min(jump, s.next_decode_refresh - s.step)
            if s.accepting == 1 and s.ready_s < np.inf:
                jump = min(jump, max(math.ceil((s.ready_s - s.now_s) / step_s), 1))
            whole = (until_s - s.now_s) / step_s
            if whole < jump:
                jump = math.floor(whole)
            if jump <= 0:
                s.step_s = step_s
                s.step_end_s = s.now_s + step_s
                s.in_step = 1
                continue
            _observe_itl(s, step_s, jump * s.decoding, itl_bounds, itl_counts, itl_fine)
            s.kv_tokens += jump * s.decoding
            s.step += jump
            s.now_s += jump * step_s
            _finish_due(s, ranks, arrival_s, prompt, output, finish_s, outcome, slots, heap)
            if s.closed == 1:
                _next_ready(s, p, ranks, arrival_s)
            continue
        if s.accepting == 0 or s.ready_s > until_s or s.ready_s == np.inf:
            if until_s < np.inf:
                s.now_s = max(s.now_s, until_s)
            return
        s.now_s = max(s.now_s, s.ready_s)


@compiled
def admit_until(at_s, state, physics, ranks, arrival_s, link):
    """Dispatch every arrival up to ``at_s``, also those still on their way to the dispatcher."""
    s = state[0]
    while s.next_arrival < s.known and arrival_s[s.next_arrival] <= at_s:
        _dispatch(s, physics[0], ranks, link, at_s)
        _next_ready(s, physics[0], ranks, arrival_s)
    _next_ready(s, physics[0], ranks, arrival_s)


@compiled
def reject_until(at_s, state, physics, ranks, arrival_s, finish_s, outcome):
    """Fail every arrival up to ``at_s`` at the moment it arrived; returns their number."""
    s = state[0]
    count = 0
    while s.next_arrival < s.known and arrival_s[s.next_arrival] <= at_s:
        i = s.next_arrival
        finish_s[i] = arrival_s[i]
        outcome[i] = REJECTED
        s.next_arrival += 1
        count += 1
    s.failed += count
    _next_ready(s, physics[0], ranks, arrival_s)
    return count


@compiled
def drop_ranks(
    first, failed_at_s, state, ranks, prompt, output, finish_s, outcome, link, slots, heap
):  # fmt: skip
    """Cut off all that runs or waits on ranks ``first`` and up; returns the number cut off.

    Only at a step boundary.
    """
    s = state[0]
    count = 0
    kept = 0
    old = s.heap
    for k in range(old):
        key = heap[k]
        slot = key & _SLOT_MASK
        if slots[slot, 1] < first:
            heap[kept] = key
            kept += 1
            continue
        i = slots[slot, 0]
        finish_s[i] = failed_at_s
        outcome[i] = ABORTED
        slots[s.free, 2] = slot
        s.free += 1
        s.decoding -= 1
        count += 1
    # What is left is no heap any more: rebuild it, and count its tokens anew.
    s.heap = 0
    s.kv_tokens = 0
    for k in range(kept):
        key = heap[k]
        _push(heap, s.heap, key)
        s.heap += 1
        i = slots[key & _SLOT_MASK, 0]
        s.kv_tokens += prompt[i] + output[i] - ((key >> SLOT_BITS) - s.step)
    for r in range(first, ranks.shape[0]):
        rank = ranks[r]
        i = rank.head
        while rank.waiting > 0:
            finish_s[i] = failed_at_s
            outcome[i] = ABORTED
            count += 1
            rank.waiting -= 1
            s.waiting -= 1
            i = link[i]
        if rank.partial >= 0:
            finish_s[rank.partial] = failed_at_s
            outcome[rank.partial] = ABORTED
            count += 1
            s.partial -= 1
        rank.head = -1
        rank.tail = -1
        rank.partial = -1
        rank.admitted = 0
        rank.decoding = 0
        rank.seen_waiting = 0
        rank.seen_admitted = 0
    s.failed += count
    s.decode_stale = 1
    return count


@compiled
def cancel(i, state, ranks, output, finish_s, outcome, link, slots, heap):
    """End request ``i``, whose client has hung up, as soon as the engine can.

    Waiting: at once, as ABORTED. Decoding: with the next step. On its way in, or in prefill: with
    its first token. The latter two end as COMPLETED, with ``output`` cut to what was made.
    """
    s = state[0]
    if outcome[i] != PENDING:
        return
    for k in range(s.heap):
        slot = heap[k] & _SLOT_MASK
        if slots[slot, 0] == i:
            output[i] -= (heap[k] >> SLOT_BITS) - s.step - 1
            _push(heap, k, ((s.step + 1) << SLOT_BITS) | slot)
            return
    for r in range(ranks.shape[0]):
        rank = ranks[r]
        before = -1
        j = rank.head
        for _ in range(rank.waiting):
            if j == i:
                if before < 0:
                    rank.head = link[i]
                else:
                    link[before] = link[i]
                if rank.tail == i:
                    rank.tail = before
                link[i] = OFF_QUEUE - r
                rank.waiting -= 1
                rank.offer = min(rank.offer, rank.waiting)
                s.waiting -= 1
                s.failed += 1
                finish_s[i] = s.now_s
                outcome[i] = ABORTED
                return
            before = j
            j = link[j]
    output[i] = 1
