"""Whatever clients put into ``custom_params`` and whatever stands on the wire: in bounds, ranked, no exception."""

import json
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.scheduler import Prediction, make_policy
from laps_sd.serving.config import ServingConfig
from laps_sd.serving.flags import HINT_KEY, META_KEY, WIRE_KEY
from laps_sd.serving.launch import Launch
from laps_sd.serving.requests.exchange import Attachment, attach, detach, detach_from_abort, read_wire
from laps_sd.serving.requests.scheduler_side import SchedulerSide
from laps_sd.serving.requests.tokenizer_side import ServerFacts, TokenizerSide

search = settings(max_examples=int(os.environ.get("LAPS_SD_FUZZ", "60")))

NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0, 1, -1, 1e308, 5e-324, 2**53, 10**400])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
HINTS = st.dictionaries(st.sampled_from(["expected_output_tokens", "priority", "x"]), NUMBERS | VALUES) | VALUES
GOOD = {"edges": [0.0, 8.0, 64.0], "survival": [1.0, 0.5, 0.0], "accept_length": 2.0, "accept_strength": 8.0}
WIRES = (
    st.fixed_dictionaries(
        {},
        optional={
            **{name: st.just(value) | st.lists(NUMBERS, max_size=5) | VALUES for name, value in GOOD.items()},
            **dict.fromkeys(("priority", "hinted", "fallen_back", "x"), VALUES),
        },
    )
    | VALUES
)
PARAMS = VALUES | st.fixed_dictionaries({}, optional={HINT_KEY: HINTS, WIRE_KEY: WIRES, "thinking_budget": VALUES})


def tokenizer_side(**hints: Any) -> TokenizerSide:
    launch = Launch(None, ServingConfig.model_validate({"unpredicted": True, "hints": hints}))
    return TokenizerSide(None, launch, lambda: ServerFacts("model", "NGRAM", 7))


def ranked(make_req: Callable[..., Any], *attachments: Attachment) -> SchedulerSide:
    """Requests with these numbers wait, take turns in two slots, and end."""
    side = SchedulerSide(make_policy("laps-sd", slots=2), max_correct_drafts=3)
    reqs = [make_req(str(i), prompt=5, limit=9, priority=i % 2 or None) for i in range(len(attachments))]
    for req, attachment in zip(reqs, attachments, strict=True):
        side.on_received(req, attachment)
    waiting, running = list(reqs), []
    while waiting or running:
        side.rank(waiting)
        for _ in range(len(waiting)):
            out = None if len(running) < 2 else side.victim(waiting[0], running)
            if len(running) == 2 and out is None:
                break
            if out is not None:
                running.remove(out)
                side.on_preempt(out, 0, "slots")
                waiting.append(out)
            side.on_admit(waiting[0])
            running.append(waiting.pop(0))
        for req in list(running):
            assert side.reserve_tokens(req) >= 0
            side.on_step(req, 1, 3, 2)
            req.output_ids += [1, 1]
            if len(req.output_ids) >= 9:
                req.finished_reason = "length"
                running.remove(req)
                json.dumps(side.on_finish(req, cut=True))
    return side


@search
@given(
    params=PARAMS,
    priority=st.none() | st.integers(-(2**70), 2**70),
    believed=st.booleans(),
    limit=st.none() | st.integers(0, 2**40),
)
def test_any_hint_is_carried_and_ranked(
    make_req: Callable[..., Any], params: Any, priority: int | None, believed: bool, limit: int | None
) -> None:
    side = tokenizer_side(priority=believed)
    sampling = SimpleNamespace(custom_params=params, max_new_tokens=limit, temperature=1.0, top_k=1)
    request = SimpleNamespace(sampling_params=sampling, priority=priority)
    side.on_tokenized(request, None, SimpleNamespace(), "Hello", [1, 2, 3])
    carried = detach(sampling)
    assert not carried.fallen_back, "no client can end laps-sd"
    assert abs(carried.priority) <= (100 if believed else 0)
    assert carried.prediction is None or carried.hinted, "no client can forge a prediction"
    own = {name: value for name, value in params.items() if name != WIRE_KEY} if isinstance(params, dict) else params
    assert sampling.custom_params == own or (own == {} and sampling.custom_params is None) or own != own  # NaN
    policy = ranked(make_req, carried, Attachment(), carried).policy
    assert policy.now > 0


@search
@given(wire=WIRES, other=WIRES)
def test_any_numbers_on_the_wire_are_a_prediction_or_nothing(
    make_req: Callable[..., Any], wire: Any, other: Any
) -> None:
    first, second = read_wire(wire), read_wire(other)
    for attachment in (first, second):
        if attachment.prediction is not None:
            again = Prediction.from_wire(json.loads(json.dumps(attachment.prediction.to_wire())))
            assert 1 <= again.length.mean() < float("inf")
            params = SimpleNamespace(custom_params=None)
            attach(params, attachment)
            assert detach(params).priority == attachment.priority
    ranked(make_req, first, second, Attachment())


@search
@given(reason=st.none() | st.dictionaries(st.sampled_from(["type", "message"]), VALUES))
def test_an_abort_of_sglangs_own_is_left_as_it_is(reason: Any) -> None:
    abort: Any = SimpleNamespace(finished_reason=reason, abort_message=None)
    assert detach_from_abort(abort) is None
    assert abort.finished_reason is reason
    assert META_KEY not in (reason or {})
