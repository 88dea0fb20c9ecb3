"""Coverage-guided fuzzing: python -m tests.fuzz READER [seconds]. Needs atheris.

Ends with the input that a reader could not bear, in the working folder; fixed, it is kept in
tests/fuzz/found as READER-what, and tried in each run of the tests.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["autoscaler"], enable_loader_override=False):
    from .readers import READERS, seeds


def main():
    name = sys.argv[1]
    seconds = sys.argv[2] if len(sys.argv) > 2 else "180"
    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(seeds(name)):
            (Path(corpus) / str(number)).write_bytes(data)
        options = [f"-max_total_time={seconds}", "-max_len=4096", "-rss_limit_mb=1500"]
        atheris.Setup([sys.argv[0], *options, corpus], READERS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
