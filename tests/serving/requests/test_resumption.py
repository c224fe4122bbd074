"""The table "can this request resume exactly?": what it decides about a request, and that the docs print it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laps_sd.serving.requests.resumption import FEATURES, ServerTraits, as_markdown, obstacle

Make = Callable[..., Any]
ROOT = Path(__file__).parents[3]
PLAIN, DRAFTS = ServerTraits(), ServerTraits(speculative=True)

PENALTIES = [{"frequency_penalty": 0.1}, {"presence_penalty": -0.1}, {"repetition_penalty": 1.1}, {"min_new_tokens": 1}]


def test_a_plain_request_can_resume(make_req: Make) -> None:
    assert obstacle(make_req("r", ignore_eos=True, stop_strs=["."]), PLAIN) is None
    assert obstacle(make_req("r", grammar="any"), DRAFTS) is None


@pytest.mark.parametrize("asked", PENALTIES, ids=lambda asked: next(iter(asked)))
def test_penalties_are_restored_without_drafts_and_an_obstacle_with_them(make_req: Make, asked: Any) -> None:
    req = make_req("r", **asked)
    assert obstacle(req, PLAIN) is None
    found = obstacle(req, DRAFTS)
    assert found is not None
    assert found.key == "penalties with drafts"


@pytest.mark.parametrize(
    ("key", "asked"),
    [
        ("hidden states", {"return_hidden_states": True}),
        ("hidden states", {"return_hidden_states": "last"}),
        ("logit processor", {"custom_logit_processor": "{}"}),
        ("experts", {"return_routed_experts": True}),
        ("experts", {"return_indexer_topk": True}),
        ("multimodal", {"multimodal_inputs": object()}),
        ("embeddings", {"input_embeds": [[0.1]]}),
        ("embeddings", {"positional_embed_overrides": object()}),
        ("embeddings", {"token_type_ids": [0]}),
        ("beams", {"beam_group": object()}),
        ("sessions", {"session": object()}),
        ("sessions", {"session_generation": 0}),
    ],
)
def test_who_cannot_resume_exactly_is_told_by_what_it_asks_for(make_req: Make, key: str, asked: Any) -> None:
    for server in (PLAIN, DRAFTS):
        found = obstacle(make_req("r", **asked), server)
        assert found is not None
        assert found.key == key


@pytest.mark.parametrize(
    ("key", "server"),
    [("deterministic", ServerTraits(deterministic=True)), ("watermark", ServerTraits(watermarks=True))],
)
def test_some_servers_preempt_nobody(make_req: Make, key: str, server: ServerTraits) -> None:
    found = obstacle(make_req("r"), server)
    assert found is not None
    assert found.key == key


def test_every_feature_is_asked_about_unless_it_always_resumes() -> None:
    assert len({feature.key for feature in FEATURES}) == len(FEATURES)
    assert all((feature.used is None) == (feature.verdict == "yes") for feature in FEATURES)
    assert all(feature.because for feature in FEATURES)


def test_the_docs_print_the_table() -> None:
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    printed = "python -c 'from laps_sd.serving.requests.resumption import as_markdown; print(as_markdown())'"
    assert f"\n{as_markdown()}\n" in text, f"print it with: {printed}"
