"""Search for input that crashes, hangs or fills memory: the tests `test_any_*` and `test_bundle_fuzz`, for minutes.

.venv/bin/python benchmarks/fuzz.py --minutes 30
.venv/bin/python benchmarks/fuzz.py --minutes 5 --part importers

Every round runs the tests of one part in a child process: with another seed, more examples than a usual test run, a
limit of memory, of time for one example, and of time for one test. What fails is printed with the round's seed and the
example that Hypothesis found: put that into the test, as `@example` or as a case of its own. Ends with 1 if anything
failed.
"""

import argparse
import itertools
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    "bundle": ["tests/predictors/test_bundle_fuzz.py"],
    "importers": ["tests/data/importers/test_any_file.py"],
    "hints": ["tests/serving/requests/test_any_request.py::test_any_hint_is_carried_and_ranked"],
    "config": ["tests/serving/test_any_config.py"],
    "wire": [
        "tests/serving/requests/test_any_request.py::test_any_numbers_on_the_wire_are_a_prediction_or_nothing",
        "tests/serving/requests/test_any_request.py::test_an_abort_of_sglangs_own_is_left_as_it_is",
        "tests/commands/test_any_predictions.py",
    ],
}
EXAMPLES = 400
MEMORY = 6 << 30  # of address space, in bytes: what is imported takes one or two of them
TEST_S = 300  # a test of so many examples that does not end within this time hangs


def main() -> int:
    """Search; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--part", choices=list(PARTS), action="append", help="may be given again; default: all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first round")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="for each test and round")
    options = parser.parse_args()
    parts = options.part or list(PARTS)
    spent, rounds, failed = dict.fromkeys(parts, 0.0), dict.fromkeys(parts, 0), []
    until = time.monotonic() + 60 * options.minutes
    for seed in itertools.count(options.seed):
        part = min(parts, key=spent.__getitem__)  # each gets the same share of the time
        started = time.monotonic()
        if started >= until:
            break
        status, output = search(part, seed, options.examples)
        spent[part] += time.monotonic() - started
        rounds[part] += 1
        print(f"{part}, seed {seed}: {verdict(status)}, {time.monotonic() - started:.0f} s", flush=True)
        if status:
            failed.append(f"{part}, seed {seed}: {verdict(status)}")
            print(output[-20_000:], flush=True)
    for part in parts:
        print(f"{part}: {rounds[part]} rounds of {options.examples} examples a test, {spent[part] / 60:.1f} minutes")
    print(f"{len(failed)} failed" + "".join(f"\n  {line}" for line in failed))
    return 1 if failed else 0


def search(part: str, seed: int, examples: int) -> tuple[int, str]:
    """Run the tests of one part in a child process; return its status and what it printed."""
    command = [
        *(sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *(f"--hypothesis-seed={seed}", f"--timeout={TEST_S}", "--timeout-method=thread", *PARTS[part]),
    ]
    environment = {**os.environ, "LAPS_SD_FUZZ": str(examples), "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(  # noqa: S603  (our own command line)
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=limit_memory,
        check=False,
    )
    return done.returncode, done.stdout


def limit_memory() -> None:
    """Let an allocation beyond the limit fail."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def verdict(status: int) -> str:
    """Say how a child ended."""
    return "passed" if status == 0 else f"killed by signal {-status}" if status < 0 else f"status {status}"


if __name__ == "__main__":
    raise SystemExit(main())
