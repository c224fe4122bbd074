"""What every registered predictor and feature set must do, and what another installed package can add."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from laps_sd.data import PromptRequest
from laps_sd.errors import InputError
from laps_sd.extensions import ACCEPTANCE_PREDICTORS, FEATURES, PREDICTORS
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.predictors.acceptance import acceptance_predictor
from laps_sd.predictors.features import feature_set
from laps_sd.predictors.length import length_predictor
from laps_sd.predictors.length.estimator import RegisteredLength
from laps_sd.predictors.rows import FitOptions, grouped_folds
from laps_sd.scheduler.survival import MAX_EDGES

ODD_PROMPTS = ["", "写一首诗", "\ud800 lone", "x" * 20_000, "a\0b"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder of random weights, so small that every set and predictor can be fitted with it."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("encoder")
    words = ["[UNK]", "[PAD]", *"abcdefghijklmnopqrstuvwxyz"]
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", pad_token="[PAD]")
    fast.save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained(folder, safe_serialization=True)
    return str(folder)


@pytest.fixture(scope="module", params=PREDICTORS.names())
def estimator(request: pytest.FixtureRequest, encoder: str) -> RegisteredLength:
    return RegisteredLength(request.param, encoder=encoder)


@pytest.fixture(scope="module")
def fitted(estimator, requests, tokens):
    return clone(estimator).fit(requests[:120], tokens[:120])


class TestEveryLengthPredictor:
    def test_is_called_what_it_is_registered_as(self, estimator):
        assert length_predictor(estimator.predictor).kind == estimator.predictor

    def test_keeps_its_parameters_in_a_clone(self, estimator):
        assert clone(estimator).get_params() == estimator.get_params()

    def test_gives_curves_that_travel_with_a_request(self, fitted):
        survival = fitted.predict_survival(ODD_PROMPTS)
        assert survival.shape == (len(ODD_PROMPTS), len(fitted.edges_))
        assert np.isfinite(survival).all()
        assert np.allclose(survival[:, 0], 1.0)
        assert (np.diff(survival, axis=1) <= 1e-12).all()
        assert (survival >= 0).all()
        assert 2 <= len(fitted.edges_) <= MAX_EDGES
        assert fitted.edges_[0] == 0
        assert (np.diff(fitted.edges_) > 0).all()

    def test_is_rebuilt_exactly_from_its_state(self, fitted, requests):
        state = fitted.model_.to_state()
        assert state.kind == fitted.predictor
        rebuilt = length_predictor(state.kind).from_state(state)
        assert np.array_equal(rebuilt.survival(requests), fitted.model_.survival(requests))

    def test_does_not_take_cut_requests_for_short_ones(self, estimator, requests, tokens):
        cap = float(np.median(tokens[:120]))
        seen, cut = np.minimum(tokens[:120], cap), tokens[:120] > cap
        honest = clone(estimator).fit(requests[:120], seen, censored=cut)
        naive = clone(estimator).fit(requests[:120], seen)
        beyond = [float(np.mean([c.survive(cap - 1) for c in m.predict_curves(requests)])) for m in (honest, naive)]
        assert beyond[0] > beyond[1]

    def test_repeats_itself(self, estimator, fitted, requests, tokens):
        again = clone(estimator).fit(requests[:120], tokens[:120])
        assert np.array_equal(fitted.predict_survival(requests), again.predict_survival(requests))


@pytest.mark.parametrize("name", FEATURES.names())
def test_every_feature_set_gives_finite_rows_and_is_rebuilt_exactly(name, encoder, requests, tokens):
    kind, few = feature_set(name), requests[:60]
    folds = grouped_folds(None, 60, 3, 0)
    features, rows = kind.fit(few, tokens[:60], np.zeros(60, bool), folds, FitOptions(name, encoder))
    assert features.kind == name
    assert rows.shape == (60, len(features.names))
    assert set(features.score_columns) <= set(range(rows.shape[1]))
    odd = features.rows([PromptRequest(prompt=p) for p in ODD_PROMPTS])
    assert np.isfinite(odd).all()
    assert np.isfinite(features.points(odd)).all()
    rebuilt = kind.from_state(features.to_state())
    assert np.array_equal(rebuilt.rows(few), features.rows(few))


@pytest.mark.parametrize("name", ACCEPTANCE_PREDICTORS.names())
def test_every_acceptance_predictor_gives_a_prior_and_is_rebuilt_exactly(name, records, requests):
    steps = {"verify_steps": 40, "accept_lengths": (1, 3) * 20, "correct_drafts_histogram": (20, 0, 20, 0)}
    rows = [r.replace(draft="ngram", max_correct_drafts=3, output_tokens=80, **steps) for r in records[:60]]
    model = acceptance_predictor(name).fit(rows, None, FitOptions())
    assert model.kind == name
    assert model.learned
    for prior in model.priors([*requests[:5], PromptRequest(prompt="")], max_correct_drafts=1):
        assert 1.0 <= prior.mean <= 2.0
        assert prior.strength > 0
    rebuilt = acceptance_predictor(name).from_state(model.to_state())
    assert rebuilt.priors(requests[:5]) == model.priors(requests[:5])
    assert not acceptance_predictor(name).fit(records[:60], None, FitOptions()).learned


def test_a_bundle_of_the_first_version_finds_its_class_curves(records, tmp_path):
    bundle = fit_bundle(records, predictor="prompt_length")
    state = bundle.length.to_state()
    old = PredictorBundle(bundle.length, bundle.acceptance, bundle.manifest)
    old.length.to_state = lambda: type(state)("classes", {"value": "prompt_length"}, state.arrays)  # type: ignore[method-assign]
    folder = old.save(tmp_path / "b")
    assert json.loads((folder / "length.json").read_text())["kind"] == "classes"
    request = PromptRequest(prompt="hello " * 9)
    assert PredictorBundle.load(folder).predict_one(request) == bundle.predict_one(request)


@pytest.mark.parametrize("table", [PREDICTORS, ACCEPTANCE_PREDICTORS, FEATURES], ids=lambda table: table.kind)
def test_the_documentation_lists_what_is_registered(table):
    page = (Path(__file__).parents[2] / "docs" / "predictors.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `--") and table.group in line]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[2])}
    assert set(table.names()) <= named


PLUGIN = '''
"""One file of another package: a length predictor, an acceptance predictor and a feature set."""

import numpy as np

from laps_sd.predictors.acceptance import AcceptanceModel, AcceptancePrior
from laps_sd.predictors.features import FeatureSet
from laps_sd.predictors.length import CurveModel, log_edges, pooled_hazard, survival_of
from laps_sd.predictors.state import State
from laps_sd.scheduler import PosteriorSettings


class Pooled(CurveModel):
    """Everybody's curve."""

    kind = "pooled"

    def __init__(self, edges, curve):
        self.edges, self.curve = edges, curve

    @classmethod
    def fit(cls, requests, tokens, censored, groups, options):
        edges = log_edges(tokens)
        return cls(edges, survival_of(pooled_hazard(tokens, censored, edges)))

    def survival(self, requests):
        return np.tile(self.curve, (len(requests), 1))

    def to_state(self):
        return State(self.kind, {}, {"edges": self.edges, "curve": self.curve})

    @classmethod
    def from_state(cls, state):
        return cls(state.arrays["edges"], state.arrays["curve"])


class Two(AcceptanceModel):
    """Two tokens a step."""

    kind = "two"

    @classmethod
    def fit(cls, records, features, options, groups=None):
        return cls()

    def priors(self, requests, *, draft=None, max_correct_drafts=None, rows=None):
        return [AcceptancePrior(2.0, 8.0, PosteriorSettings(), max_correct_drafts, 2.0, 8.0)] * len(requests)

    def to_state(self, with_features=True):
        return State(self.kind)

    @classmethod
    def from_state(cls, state, features=None):
        return cls()


class Sizes(FeatureSet):
    """Characters and words."""

    kind = "sizes"
    names = ("characters", "words")
    score_columns = (0,)

    @classmethod
    def fit(cls, requests, tokens, censored, folds, options):
        return cls(), cls().rows(requests)

    def rows(self, requests):
        return np.log1p([[len(r.prompt), len(r.prompt.split())] for r in requests]).reshape(len(requests), 2)

    def to_state(self):
        return State(self.kind)

    @classmethod
    def from_state(cls, state):
        return cls()
'''


@pytest.fixture
def package(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the package is installed."""
    site = tmp_path / "site"
    info = site / "demo_predictors-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "demo_predictors.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-predictors\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[laps_sd.predictors]\npooled = demo_predictors:Pooled\nacceptance.two = demo_predictors:Two\n"
        "[laps_sd.features]\nsizes = demo_predictors:Sizes\n"
    )
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def laps_sd(*arguments: str | Path, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "laps_sd", *map(str, arguments)]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True)


def test_another_package_adds_predictors_and_features_by_name(package, records, tmp_path):
    from laps_sd.data import write_records

    trace = tmp_path / "trace.jsonl"
    write_records(trace, records[:60])
    help_text = laps_sd("train", "--help", env={**package, "COLUMNS": "200"}, cwd=tmp_path).stdout
    assert all(name in help_text for name in ("pooled", "two", "sizes"))
    names = ["--predictor", "pooled", "--acceptance", "two"]
    done = laps_sd("train", "--data", trace, "--out", tmp_path / "b", *names, env=package, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    seen = laps_sd("predict", "--bundle", tmp_path / "b", "--json", "hello", env=package, cwd=tmp_path)
    assert json.loads(seen.stdout)["accept_length"] == 2.0
    with pytest.raises(
        InputError,
        match=r"'pooled', which no installed package registers; pip install demo-predictors",
    ):
        PredictorBundle.load(tmp_path / "b")


def test_the_default_predictor_learns_from_another_package_s_features(package, records, tmp_path):
    from laps_sd.data import write_records

    trace = tmp_path / "trace.jsonl"
    write_records(trace, records[:80])
    done = laps_sd("train", "--data", trace, "--out", tmp_path / "b", "--features", "sizes", env=package, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert laps_sd("predict", "--bundle", tmp_path / "b", "hello", env=package, cwd=tmp_path).returncode == 0
    with pytest.raises(
        InputError, match=r"feature set 'sizes', which no installed package registers; pip install demo"
    ):
        PredictorBundle.load(tmp_path / "b")
