"""How fast JSON lines are read and validated, on one core, and how much memory it takes.

    python benchmarks/bench_records.py [--records N] [--json FILE]

Prints one line per file size. Targets: 100,000 records of 500-character prompts a second, and less than 300 MB
resident whatever the size of the file.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from laps_sd.data import RequestRecord, iter_records, write_records

TARGET_PER_SECOND = 100_000
TARGET_MB = 300


def make(path: Path, count: int) -> None:
    """Write ``count`` full records with prompts of 500 characters, like those that ``collect`` writes."""
    rng = random.Random(0)  # noqa: S311 - test data
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(2000)]
    prompts = [" ".join(rng.choices(words, k=120))[:500] for _ in range(500)]

    def record(i: int) -> RequestRecord:
        histogram = (rng.randint(1, 50), rng.randint(0, 20), rng.randint(0, 9), rng.randint(0, 5))
        return RequestRecord(
            request_id=f"request-{i:09d}",
            prompt=prompts[i % 500],
            prompt_tokens=130,
            output_tokens=rng.randint(1, 384),
            finish_reason="stop",
            max_new_tokens=384,
            temperature=0.0,
            model="model",
            draft="NGRAM",
            max_correct_drafts=7,
            verify_steps=sum(histogram),
            correct_drafts_histogram=histogram,
            arrival_s=i * 0.01,
            queue_s=0.002,
            ttft_s=0.25,
            e2e_s=3.5,
            source="bench",
            group=str(i),
            category="bench",
        )

    write_records(path, map(record, range(count)))


def read(path: Path) -> dict[str, float]:
    """Read a file in this process and return what it took."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    count = sum(1 for _ in iter_records(path))
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "records": count,
        "file_mb": path.stat().st_size / 1e6,
        "wall_s": wall,
        "cpu_s": cpu,
        "records_per_cpu_s": count / cpu,
        "peak_rss_mb": after.ru_maxrss / 1024,
    }


def main() -> None:
    """Read files of growing size, each in a process of its own so that its peak memory is its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="records of the largest file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(read(arguments.read)))
        return
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for count in (arguments.records // 10, arguments.records):
            path = Path(folder) / "records.jsonl"
            make(path, count)
            out = subprocess.run(  # noqa: S603 - this file itself
                [sys.executable, __file__, "--read", str(path)], check=True, capture_output=True, text=True
            )
            result = json.loads(out.stdout)
            results.append(result)
            print(
                f"{result['records']:>9,} records, {result['file_mb']:7.0f} MB: "
                f"{result['records_per_cpu_s']:,.0f} records per CPU second (wall {result['wall_s']:.1f} s), "
                f"peak {result['peak_rss_mb']:.0f} MB"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    good = all(r["records_per_cpu_s"] >= TARGET_PER_SECOND and r["peak_rss_mb"] < TARGET_MB for r in results)
    print("targets met" if good else f"targets missed: {TARGET_PER_SECOND:,} records/s, {TARGET_MB} MB")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
