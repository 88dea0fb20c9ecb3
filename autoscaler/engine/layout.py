"""Memory layout of the engine: the record types that the compiled loop works on.

Numba accesses record fields by name at the speed of a C struct, so the loop reads like the
model it implements and crosses the Python border with a handful of arrays.
"""

import numpy as np

STATE = np.dtype(
    [
        ("now_s", "f8"),  # the present step boundary
        ("step_end_s", "f8"),  # end of the step in progress
        ("step_s", "f8"),  # duration of the step in progress
        ("ready_s", "f8"),  # when the next arrival reaches the dispatcher; inf: none known
        ("next_refresh_s", "f8"),  # when the dispatcher next learns the true loads
        ("decode_s", "f8"),  # present decode step time
        ("ttft_sum_s", "f8"),
        ("itl_sum_s", "f8"),
        ("e2e_sum_s", "f8"),
        ("turnaround_s", "f8"),  # closed loop: from last token to the client's next request
        ("step", "i8"),  # steps done; a running request finishes at a known value of it
        ("next_decode_refresh", "i8"),  # step at which decode_s is computed anew
        ("known", "i8"),  # arrivals whose time is known
        ("next_arrival", "i8"),
        ("in_step", "i8"),
        ("hold", "i8"),  # 1: end the step in progress and begin no other
        ("decode_stale", "i8"),
        ("closed", "i8"),  # closed loop: a finish makes the next arrival
        ("accepting", "i8"),  # 0: arrivals are left alone until somebody decides about them
        ("dispatch_ranks", "i8"),  # ranks that take new requests (fewer than all while draining)
        ("waiting", "i8"),
        ("partial", "i8"),  # ranks with a prompt partly prefilled
        ("decoding", "i8"),
        ("first_tokens", "i8"),  # prompts that complete in the step in progress
        ("heap", "i8"),
        ("free", "i8"),
        ("kv_tokens", "i8"),
        ("completed", "i8"),
        ("failed", "i8"),
        ("prompt_tokens", "i8"),
        ("output_tokens", "i8"),
        ("uncounted", "i8"),  # stays 0: what a real engine's metrics do not count either
        ("round_robin", "i8"),
        ("prefill_steps", "i8"),  # counts the draws of prefill_spread_s
    ]
)

RANK = np.dtype(
    [
        ("head", "i8"),  # first waiting request, -1: none
        ("tail", "i8"),
        ("waiting", "i8"),
        ("admitted", "i8"),  # in a slot: decoding or prefilling
        ("decoding", "i8"),
        ("partial", "i8"),  # request partly prefilled, -1: none
        ("partial_done", "i8"),
        ("seen_waiting", "i8"),  # what the dispatcher believes
        ("seen_admitted", "i8"),
        ("offer", "i8"),  # schedule_ahead: requests the step after next may admit
        ("api_free_s", "f8"),  # API server r is busy until then
    ]
)

PHYSICS = np.dtype(
    [
        ("ranks", "i8"),
        ("slots_per_rank", "i8"),
        ("token_budget", "i8"),
        ("api_servers", "i8"),
        ("round_robin", "i8"),  # 1: round robin, 0: least load
        ("schedule_ahead", "i8"),  # 1: a step is put together while the one before it runs
        ("api_serial_s", "f8"),
        ("overhead_s", "f8"),
        ("load_refresh_s", "f8"),
        ("waiting_weight", "f8"),
        ("prefill_floor_s", "f8"),
        ("prefill_spread_s", "f8"),
        ("prefill_spread_power", "f8"),
        ("prefill_flat_s", "f8"),
        ("prefill_token_s", "f8"),
        ("prefill_rank_token_s", "f8"),
        ("prefill_token2_s", "f8"),
        ("mixed_share", "f8"),
        ("kv_token_s", "f8"),
        ("mixed_kv_token_s", "f8"),
    ]
)

PENDING, COMPLETED, REJECTED, ABORTED = 0, 1, 2, 3
"""Outcome of a request: not ended, served, refused at the door, cut off."""

ITL_FINE_FLOOR_S = 1e-5
ITL_FINE_LOG_STEP = 0.002
ITL_FINE_BINS = 8192
"""Fine inter-token latency histogram: bins of 0.2 % from 10 us to 130 s."""

SLOT_BITS = 20
"""A heap key is finish step << SLOT_BITS | slot: 2**20 slots, 2**43 steps."""

OFF_QUEUE = -2
"""``link`` holds OFF_QUEUE - rank for a request on a rank but in no queue: before its dispatch the
rank that its client chose, from its admission on the rank that serves it."""
