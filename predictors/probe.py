"""One prediction with a bundle in a process of its own, before a server depends on it.

Loading checks what can be checked. What is left (another package's predictor, a library that crashes) shows itself
here, where it costs a sentence and not the server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from laps_sd.data import PromptRequest
from laps_sd.data.progress.counting import COUNTERS
from laps_sd.errors import InputError, LapsError
from laps_sd.predictors.bundle import PredictorBundle
from laps_sd.scheduler import Prediction

#: Seconds that a probe may take: an encoder imports torch and reads its weights.
LIMIT_S = 120.0
#: Short, empty, long, and of scripts without spaces: each takes another way through the features.
_PROMPTS = ("Why is the sky blue?", "", "Rewrite this text. " * 500, "写一首关于秋天的诗")


def probe(bundle: Path | str, limit_s: float = LIMIT_S) -> str | None:
    """Predict with a bundle in a child process.

    Parameters
    ----------
    bundle : path
        Its folder.
    limit_s : float
        Seconds that the child may take.

    Returns
    -------
    str or None
        Why the bundle cannot be served, in one sentence; None when it can.
    """
    # -P: no module of the working directory stands in for one of ours.
    command = [sys.executable, "-P", "-c", "from laps_sd.predictors.probe import main; main()", str(bundle)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"bundle {bundle} takes longer than {limit_s:g} s to load and predict; train it again"
    except OSError as error:
        return f"bundle {bundle} cannot be tried: no process can be started ({error.strerror})"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return f"bundle {bundle} kills the process that predicts with it ({name}); train it again"
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"bundle {bundle} ends the process that predicts with it; train it again"


def load_probed(bundle: Path | str) -> PredictorBundle:
    """Load a bundle after a child process has predicted with it.

    Raises
    ------
    InputError
        What :func:`probe` says.
    """
    if (sentence := probe(bundle)) is not None:
        raise InputError(sentence)
    return PredictorBundle.load(bundle)


def _refine(bundle: PredictorBundle, prediction: Prediction) -> None:
    """Refine one prediction at every checkpoint, of an answer of which nothing was noted and of one full of it."""
    refiner = bundle.refinement
    if refiner is None:
        return
    for checkpoint in refiner.checkpoints:
        for count in (0, checkpoint):
            curve = refiner.refine(prediction.length, checkpoint, [count] * len(COUNTERS), 1.0)
            if curve is None or not curve.mean(checkpoint) > 0.0:
                raise ValueError("a refined length is not positive")


def main() -> None:
    """Load the bundle that the command line names and predict; on failure say why and exit with 1."""
    path = sys.argv[1]
    try:
        bundle = PredictorBundle.load(path)
        requests = [PromptRequest(prompt=prompt) for prompt in _PROMPTS]
        together = bundle.predict(requests)
        alone = [bundle.predict_one(request, max_correct_drafts=1) for request in requests]
        if not all(p.length.mean() > 0.0 for p in (*together, *alone)):
            raise ValueError("a predicted length is not positive")
        _refine(bundle, together[0])
    except LapsError as error:
        sys.exit(str(error))
    except Exception as error:  # anybody's predictor
        sys.exit(f"bundle {path} cannot predict ({error!r:.300}); train it again")
