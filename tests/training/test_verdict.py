"""The verdict of a training: better than chance and than simple rules, or not, and what makes the figures doubtful."""

from typing import Any

import pytest

from laps_sd.data import RequestRecord
from laps_sd.training.verdict import verdict


def figures(tau: float | None = 0.4, low: float = 0.3, c: float | None = 0.7, simple: float | None = 0.6) -> Any:
    interval = None if tau is None else {"kendall_tau": [low, 0.5]}
    baselines = {"constant": {"length": {"c_index": 0.5}}, "prompt_length": {"length": {"c_index": simple}}}
    length = {"kendall_tau": tau, "c_index": c, "ci_95": interval}
    return {"length": length, "baselines": {**baselines, "category": None}}


def records(n: int = 400, cut: int = 0, prompts: int | None = None, source: str | None = None) -> list[RequestRecord]:
    return [
        RequestRecord(
            request_id=str(i),
            prompt=f"question {i % (prompts or n)}",
            prompt_tokens=3,
            output_tokens=5 + i,
            finish_reason="length" if i < cut else "stop",
            source=source,
        )
        for i in range(n)
    ]


def test_a_predictor_that_orders_better_than_chance_and_every_simple_rule_is_good() -> None:
    judged = verdict(figures(), records())
    assert judged.good
    assert judged.warnings == ()
    assert "τ 0.40, 95 % interval 0.30 to 0.50" in str(judged)
    assert "the length of the prompt alone (c-index 0.70 against 0.60)" in str(judged)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (figures(low=-0.01), "not shown to order requests better than chance"),
        (figures(tau=None), "it orders nothing"),
        (figures(c=0.6), "orders them as well or better"),
        (figures(c=None), "cannot be compared"),
        ({**figures(), "baselines": None}, "cannot be compared"),
    ],
)
def test_anything_less_is_doubtful(found: Any, why: str) -> None:
    judged = verdict(found, records())
    assert not judged.good
    assert str(judged).startswith("doubtful: ")
    assert why in str(judged)


@pytest.mark.parametrize(
    ("seen", "warned"),
    [
        (records(60), "only 60 requests ended"),
        (records(400, cut=280), "70 % of the requests were cut"),
        (records(400, prompts=20), "the 400 requests are 20 prompts"),
        (records(source="burst"), "all requests come from burst"),
    ],
)
def test_doubtful_data_are_named(seen: list[RequestRecord], warned: str) -> None:
    (warning,) = verdict(figures(), seen).warnings
    assert warned in warning
