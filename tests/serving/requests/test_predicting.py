"""A prediction never holds up a request for longer than it may."""

import threading
import time
from typing import Any

import pytest

from laps_sd.data import PromptRequest
from laps_sd.serving.requests.predicting import TimedPredictor

REQUEST = PromptRequest(prompt="Hello")


class Slow:
    """Answers when it is let go."""

    def __init__(self, prediction: Any) -> None:
        self.go = threading.Event()
        self._prediction = prediction

    def predict_one(self, request: PromptRequest, **_: Any) -> Any:
        self.go.wait(5)
        return self._prediction


class Broken:
    def predict_one(self, request: PromptRequest, **_: Any) -> Any:
        raise RuntimeError("no such feature")


class Fixed:
    def __init__(self, prediction: Any) -> None:
        self._prediction = prediction
        self.asked: list[Any] = []

    def predict_one(self, request: PromptRequest, **server: Any) -> Any:
        self.asked.append((request, server))
        return self._prediction


def test_a_prediction_in_time_comes_back(prediction: Any) -> None:
    bundle = Fixed(prediction(30))
    outcome = TimedPredictor(bundle, 1.0).predict(REQUEST, draft="NGRAM", max_correct_drafts=7)
    assert outcome.prediction is bundle._prediction
    assert outcome.reason == ""
    assert bundle.asked == [(REQUEST, {"draft": "NGRAM", "max_correct_drafts": 7})]


def test_without_a_bundle_nothing_is_tried() -> None:
    outcome = TimedPredictor(None, 1.0).predict(REQUEST)
    assert (outcome.prediction, outcome.reason, outcome.seconds) == (None, "no bundle", None)


def test_a_predictor_that_fails_does_not_fail_the_request() -> None:
    outcome = TimedPredictor(Broken(), 1.0).predict(REQUEST)
    assert (outcome.prediction, outcome.reason) == (None, "failed")
    assert isinstance(outcome.error, RuntimeError)


def test_a_slow_prediction_is_given_up_and_the_next_requests_do_not_wait_for_it(prediction: Any) -> None:
    bundle = Slow(prediction(30))
    predictor = TimedPredictor(bundle, 0.2)
    assert predictor.predict(REQUEST).reason == "slow"
    started = time.perf_counter()
    assert [predictor.predict(REQUEST).reason for _ in range(50)] == ["busy"] * 50
    assert time.perf_counter() - started < 5, "fifty waits would take ten seconds"
    bundle.go.set()
    for _ in range(500):
        if predictor.predict(REQUEST).prediction is not None:
            return
        time.sleep(0.01)
    pytest.fail("the predictor came back but was never asked again")


def test_everything_a_predictor_raises_is_told_and_none_of_it_gets_through() -> None:
    class Raises:
        def predict_one(self, request: PromptRequest, **_: Any) -> Any:
            raise error

    told: list[BaseException] = []
    predictor = TimedPredictor(Raises(), 5.0, told.append)
    for error in (RuntimeError("a"), TimeoutError("its own, not ours"), SystemExit(3), KeyboardInterrupt()):
        assert predictor.predict(REQUEST).reason == "failed"
        assert told[-1] is error


def test_what_fails_after_it_was_given_up_is_told_too() -> None:
    class SlowAndBroken:
        def predict_one(self, request: PromptRequest, **_: Any) -> Any:
            go.wait(5)
            raise RuntimeError("late")

    go, told = threading.Event(), threading.Event()
    assert TimedPredictor(SlowAndBroken(), 0.05, lambda _: told.set()).predict(REQUEST).reason == "slow"
    go.set()
    assert told.wait(5)
