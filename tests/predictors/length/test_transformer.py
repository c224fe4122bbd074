"""The encoder-based predictors, on an encoder small enough to train in a test."""

import numpy as np
import pytest
import torch

from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.predictors.features.encoder import HEAD_TOKENS, TAIL_TOKENS, Encoder
from laps_sd.predictors.length.transformer import TransformerLength

TEXTS = ["", "Write a story about a fox.", "短い", "🙂", "word " * 3000, "\ud800"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a random one-layer BERT and a character-level tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    characters = [chr(i) for i in range(32, 127)]
    pieces = ["[PAD]", "[UNK]", *characters, *(f"##{c}" for c in characters)]
    tokenizer = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


def test_an_embedding_has_unit_length_and_does_not_depend_on_its_neighbours(tiny):
    encoder = Encoder.load(tiny)
    vectors = encoder.embed(TEXTS)
    assert vectors.shape == (6, 16)
    assert np.linalg.norm(vectors[1:], axis=1) == pytest.approx(1.0, abs=1e-5)
    assert vectors[1] == pytest.approx(encoder.embed([TEXTS[1]])[0], abs=1e-5)


def test_a_long_prompt_is_read_at_both_ends(tiny):
    encoder = Encoder.load(tiny)
    ((_, tokens, _),) = encoder.batches(["a " * 500 + "z"])
    assert tokens.shape == (1, HEAD_TOKENS + TAIL_TOKENS)
    assert tokens[0, -1] == encoder.tokenizer.encode("z").ids[0]


def test_an_encoder_survives_its_state_exactly(tiny):
    encoder = Encoder.load(tiny)
    assert np.array_equal(Encoder.from_state(encoder.to_state()).embed(TEXTS), encoder.embed(TEXTS))


def test_no_encoder_is_said_in_one_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot load the text encoder") as caught:
        Encoder.load(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_fine_tuning_learns_what_the_text_tells(tiny):
    random = np.random.default_rng(0)
    kinds = random.integers(0, 2, 160)
    texts = [("zzzz qqqq" if kind else "aaaa bbbb") + f" {i}" for i, kind in enumerate(kinds)]
    tokens = np.rint(np.where(kinds, 400.0, 20.0) * np.exp(0.2 * random.standard_normal(160)))
    model = TransformerLength(encoder=tiny, learning_rate=3e-3, epochs=8).fit(texts, tokens)
    long, short = model.predict(["zzzz qqqq 9", "aaaa bbbb 9"])
    assert long > 3 * short
    again = TransformerLength(encoder=tiny, learning_rate=3e-3, epochs=8).fit(texts, tokens)
    assert np.array_equal(again.predict(texts[:5]), model.predict(texts[:5]))


@pytest.mark.parametrize("options", [{"features": "embedding"}, {"predictor": "transformer"}], ids=str)
def test_a_bundle_carries_its_encoder(tiny, records, requests, tmp_path, options):
    bundle = fit_bundle(records[:80], encoder=tiny, **options)
    loaded = PredictorBundle.load(bundle.save(tmp_path / "bundle"))
    assert loaded.predict(requests[:4]) == bundle.predict(requests[:4])
    assert loaded.manifest["encoder"]
