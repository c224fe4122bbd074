"""How much the text so far tells of the rest: conversations with answers, evaluated out-of-fold by prompt.

``python benchmarks/bench_refinement.py --tokenizer MODEL FILE…`` reads what ``laps-sd import chat`` reads (several
files are one source, such as the answers of several models to one set of prompts), counts the answers with the model's
tokenizer, and prints the table of ``laps-sd evaluate`` and what one refinement costs. Nothing is logged or kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

import numpy as np
from rich.console import Console

from laps_sd.commands._training import refinement_table
from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.data.importers import ImportOptions, import_records
from laps_sd.data.progress.classes import TokenClasses
from laps_sd.data.progress.counting import CHECKPOINTS, counts_after
from laps_sd.data.tokenizer import load_tokenizer
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.training import run_evaluation

_TIMES = 2000


def main() -> None:
    """Read the files, evaluate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tokenizer", required=True, help="Model folder or hub name.")
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.tokenizer)
    records = list(import_records("chat", options.files, ImportOptions(tokenizer=tokenizer)))
    console = Console(width=140)
    evaluation = run_evaluation(None, records, cv=options.folds, acceptance="run_mean", log=False)
    table = refinement_table(evaluation.figures)
    console.print("no refinement was learned: too few answers, or no gain" if table is None else table)
    costs(console, records, TokenClasses.of(tokenizer))


def costs(console: Console, records: list[RequestRecord], classes: TokenClasses) -> None:
    """Print CPU microseconds of one checkpoint: counting, and the refined curve."""
    bundle: PredictorBundle = fit_bundle(records[:2000], acceptance="run_mean")
    refiner = bundle.refinement
    if refiner is None:
        return
    random = np.random.default_rng(0)
    curve = bundle.predict_one(PromptRequest.from_record(records[0])).length
    for checkpoint in refiner.checkpoints:
        ids = random.integers(0, len(classes), checkpoint)
        counts = counts_after(ids, classes).tolist()
        refiner.refine(curve, checkpoint, counts)
        began = process_time()
        for _ in range(_TIMES):
            counts_after(ids, classes)
        counted = process_time()
        for _ in range(_TIMES):
            refiner.refine(curve, checkpoint, counts)
        refined = process_time()
        each = [1e6 * seconds / _TIMES for seconds in (counted - began, refined - counted)]
        console.print(
            f"after {checkpoint} tokens: counting {each[0]:.0f} us, refining {each[1]:.0f} us, "
            f"together {sum(each) / (checkpoint - max((c for c in CHECKPOINTS if c < checkpoint), default=0)):.2f} us "
            "for each token since the last checkpoint"
        )


if __name__ == "__main__":
    main()
