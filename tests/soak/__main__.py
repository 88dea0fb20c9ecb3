"""A soak in simulated time: python -m tests.soak [ticks] [seed]. Prints JSON."""

import json
import resource
import sys
from pathlib import Path
from time import perf_counter, process_time

from .run import soak


def rss_mib():
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def main():
    ticks = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    soak(seed + 1_000, 40_000)  # warm: what a first world loads is no growth
    before_mib, began_s, cpu_s = rss_mib(), perf_counter(), process_time()
    counts, codes, faults, kept = soak(seed, ticks)
    result = {
        "schema": "autoscaler.soak/v1",
        "seed": seed,
        "took_s": round(perf_counter() - began_s, 1),
        "cpu_s": round(process_time() - cpu_s, 1),
        "rss_mib": [before_mib, rss_mib()],
        "values_kept": kept,
        "counts": dict(sorted(counts.items())),
        "faults": dict(sorted(faults.items())),
        "codes": dict(codes.most_common()),
    }
    print(json.dumps(result, indent=1))  # noqa: T201  # a command


if __name__ == "__main__":
    main()
