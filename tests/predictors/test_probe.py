"""A bundle is tried in a process of its own before a server depends on it."""

import os
from pathlib import Path

import pytest

from laps_sd.errors import InputError
from laps_sd.predictors import fit_bundle
from laps_sd.predictors.probe import load_probed, probe

FATAL = """
import os, time
from laps_sd.predictors.length.class_curves import ConstantCurves

class Fatal(ConstantCurves):
    kind = "fatal"
    def survival(self, requests):
        {deed}
"""


@pytest.fixture(scope="module")
def folder(records, tmp_path_factory) -> Path:
    return fit_bundle(records[:60], predictor="constant").save(tmp_path_factory.mktemp("probe") / "b")


def test_a_good_bundle_passes_and_is_loaded(folder):
    assert probe(folder) is None
    assert load_probed(folder).manifest["predictor"] == "constant"


def test_a_bundle_that_cannot_be_loaded_is_refused_with_the_reason(tmp_path):
    with pytest.raises(InputError, match=rf"^{tmp_path} is not a bundle"):
        load_probed(tmp_path)


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("os.abort()", "kills the process that predicts with it (SIGABRT)"),
        ("time.sleep(60)", "takes longer than 5 s"),
        ("raise RuntimeError('no luck')", "cannot predict (RuntimeError('no luck'))"),
        ("return super().survival(requests) * float('nan')", "cannot predict (ValueError("),
        ("os._exit(3)", "ends the process"),
    ],
)
def test_a_predictor_that_would_end_or_hold_up_the_server_is_refused(records, tmp_path, monkeypatch, deed, reason):
    """Another package's predictor, whose code no check of ours can judge."""
    site = tmp_path / "site"
    info = site / "fatal-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "fatal_predictor.py").write_text(FATAL.format(deed=deed))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fatal\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[laps_sd.predictors]\nfatal = fatal_predictor:Fatal\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]))
    bundle = fit_bundle(records[:60], predictor="constant")
    monkeypatch.setattr(type(bundle.length), "kind", "fatal")
    folder = bundle.save(tmp_path / "b")
    assert reason in str(probe(folder, limit_s=5.0))
