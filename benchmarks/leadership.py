"""Random kills and freezes of leaders: who wrote, and how long the lease was nobody's.

Each round hits the leader of three ``autoscaler run`` processes with SIGKILL, with SIGSTOP (in half
of the cases just before a write is sent) or with a short stop; the lease is one second. Strays are
writes by a process that the Lease did not name when they came in, by the API server's own log.

    python -m benchmarks.leadership --rounds 200 --lanes 4
"""

import argparse
import json
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor

from autoscaler.clock import SystemClock
from tests.e2e.leadership.rounds import Game


def lane(seed: int, rounds: int) -> Game:
    """One lease's share of the rounds."""
    with tempfile.TemporaryDirectory() as folder:
        game = Game(folder, seed)
        try:
            game.play(rounds)
        finally:
            game.close()
    return game


def main() -> None:
    """Play, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--lanes", type=int, default=4, help="leases at a time")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    clock = SystemClock()
    began_s = clock.now_s()
    with ThreadPoolExecutor(given.lanes) as pool:
        share = -(-given.rounds // given.lanes)
        seeds = range(given.seed, given.seed + given.lanes)
        games = list(pool.map(lane, seeds, [share] * given.lanes))
    takeovers_s = {
        deed: sorted(s for game in games for s in game.takeovers_s[deed])
        for deed in ("kill", "freeze")
    }
    ends = [end for game in games for end in game.ends]
    print(
        json.dumps(
            {
                "rounds": share * given.lanes,
                "wall_s": round(clock.now_s() - began_s, 1),
                "writes": sum(len(game.cluster.writes()) for game in games),
                "strays": sum(len(game.cluster.strays()) for game in games),
                "problems": [problem for game in games for problem in game.problems],
                "ends_of_frozen": {str(end): ends.count(end) for end in sorted(set(ends))},
                "takeover_s": {
                    deed: {
                        "n": len(found),
                        "p50": round(statistics.median(found), 2),
                        "max": round(found[-1], 2),
                    }
                    for deed, found in takeovers_s.items()
                    if found
                },
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
