"""Prediction and training cost: latency, load time, memory, training speed.

    python benchmarks/bench_predictors.py [--train 5000 200000] [--json FILE]

Prompts are generated, about 1,000 characters each. One core. Targets: one prompt 0.5 ms (aim 0.1) for both predictors
together, 1,000 prompts 400 ms (aim 150) batched, load under 1 s, memory added under 100 MB, 5,000 records trained
within 60 s and 200,000 within 10 minutes and 4 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.data.prompts import generate_prompts
from laps_sd.predictors import PredictorBundle, fit_bundle

#: Runs in a process of its own: what a server adds by loading a bundle and predicting once.
_LOADER = """
import sys, time, pathlib
def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
import numpy
before, start = resident(), time.perf_counter()
from laps_sd.predictors import PredictorBundle
from laps_sd.data import PromptRequest
imported = time.perf_counter()
bundle = PredictorBundle.load(sys.argv[1])
loaded = time.perf_counter()
bundle.predict([PromptRequest(prompt="word " * 200)] * 200)
print(imported - start, loaded - imported, resident() - before)
"""


def synthetic_records(n: int, seed: int = 0) -> list[RequestRecord]:
    """Prompts of many kinds, repeated with different fillings, whose lengths follow their kind."""
    random = np.random.default_rng(seed)
    base = generate_prompts(min(n, 5000), seed)
    words = [w for prompt in base[:500] for w in prompt.prompt.split()]
    records = []
    for i in range(n):
        prompt = base[i % len(base)]
        filling = " ".join(random.choice(words, int(random.integers(5, 120))))
        place = zlib.crc32((prompt.category or "").encode()) % 1000 / 1000
        length = max(1, round(8 * 75**place * float(np.exp(0.5 * random.standard_normal()))))
        steps = random.multinomial(max(1, length // 3), [0.3, 0.3, 0.2, 0.2])
        records.append(
            RequestRecord(
                request_id=str(i),
                prompt=f"{prompt.prompt}\n{filling}",
                prompt_tokens=60,
                output_tokens=max(length, int(steps.sum())),
                finish_reason="stop",
                model="m",
                draft="ngram",
                max_correct_drafts=3,
                verify_steps=int(steps.sum()),
                correct_drafts_histogram=tuple(int(s) for s in steps),
                group=str(i),
            )
        )
    return records


def long_prompts(n: int, characters: int = 1000) -> list[PromptRequest]:
    """Different prompts of about ``characters`` characters."""
    texts = [p.prompt for p in generate_prompts(2000, 7)]
    prompts = []
    for i in range(n):
        text = texts[i % len(texts)]
        j = i
        while len(text) < characters:
            j = (j * 31 + 17) % len(texts)
            text += "\n" + texts[j]
        prompts.append(PromptRequest(prompt=text[:characters], prompt_tokens=250, model="m"))
    return prompts


def quantiles_ms(times: list[float]) -> dict[str, float]:
    """Median and 99th percentile, milliseconds."""
    p50, p99 = np.quantile(np.array(times) * 1e3, [0.5, 0.99])
    return {"p50": float(p50), "p99": float(p99)}


def prediction_cost(bundle: PredictorBundle) -> dict[str, Any]:
    """Time single predictions and batches of 1,000."""
    prompts = long_prompts(2000)
    single = []
    for prompt in prompts:
        start = perf_counter()
        bundle.predict_one(prompt, draft="ngram", max_correct_drafts=3)
        single.append(perf_counter() - start)
    batches = []
    for _ in range(5):
        start = perf_counter()
        bundle.predict(prompts[:1000], draft="ngram", max_correct_drafts=3)
        batches.append(perf_counter() - start)
    return {"one_prompt_ms": quantiles_ms(single[100:]), "batch_1000_ms": quantiles_ms(batches)["p50"]}


def load_cost(folder: Path) -> dict[str, float]:
    """Import and load a bundle in a fresh process."""
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", _LOADER, str(folder)], capture_output=True, text=True, check=True
    )
    imported, loaded, memory = (float(x) for x in done.stdout.split())
    return {"import_s": imported, "load_s": loaded, "memory_added_mb": memory}


def main() -> None:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, nargs="*", default=[5000], help="numbers of training records")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"train": {}}
    for n in arguments.train or [5000]:
        records = synthetic_records(n)
        start = perf_counter()
        bundle = fit_bundle(records)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        figures["train"][n] = {"s": perf_counter() - start, "peak_gb": peak}
        print(json.dumps({n: figures["train"][n]}), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        figures["load"] = load_cost(bundle.save(Path(folder) / "bundle"))
        figures["prediction"] = prediction_cost(PredictorBundle.load(Path(folder) / "bundle"))
    print(json.dumps(figures, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
