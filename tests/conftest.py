"""What all tests share: property tests that search the same examples everywhere, however slow the machine."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "laps-sd", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
# benchmarks/fuzz.py: other examples each time, and none that takes long.
settings.register_profile("laps-sd search", settings.get_profile("laps-sd"), derandomize=False, deadline=20_000)
settings.load_profile("laps-sd search" if "LAPS_SD_FUZZ" in os.environ else "laps-sd")


@pytest.fixture
def as_in_a_terminal() -> Iterator[None]:
    """Signals as a person's terminal leaves them: background jobs and ``nohup`` inherit ignored ones."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def with_extension(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a process that has tests/extension_package/ installed beside laps-sd, as anyone would install it."""
    folder = tmp_path_factory.mktemp("extension")
    source, site = folder / "source", folder / "site"
    package = Path(__file__).parent / "extension_package"
    shutil.copytree(package, source, ignore=shutil.ignore_patterns("__pycache__"))  # building leaves files behind
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--target", str(site), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {"PYTHONPATH": os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])}


@pytest.fixture(scope="session")
def make_refiner() -> Callable[..., Any]:
    """``make_refiner(table, checkpoints, sentences)``: much is left of few sentences, of so many next to nothing."""

    def make(table: str, checkpoints: Sequence[int], sentences: float) -> Any:
        import lightgbm as lgb
        import numpy as np

        from laps_sd.predictors.length.calibration import Calibration
        from laps_sd.predictors.progress.columns import NAMES
        from laps_sd.predictors.progress.refiner import Refiner
        from laps_sd.predictors.trees import Trees

        rows = np.zeros((200, len(NAMES)))
        rows[100:, NAMES.index("sentence_end")] = sentences
        target = np.zeros((200, 2))
        target[:100, 0], target[100:, 0] = 2.0, -4.0

        def gradients(raw: Any, _data: object) -> tuple[Any, Any]:
            return raw.reshape(200, 2) - target, np.ones((200, 2))

        options = {"num_class": 2, "num_leaves": 2, "min_data_in_leaf": 5, "learning_rate": 1.0, "verbosity": -1}
        booster = lgb.train({**options, "objective": gradients}, lgb.Dataset(rows, label=np.zeros(200)), 1)
        return Refiner(Trees(booster.model_to_string(), 2), Calibration.identity(), checkpoints, [table])

    return make
