"""Predicting one request in the tokenizer process, with a limit on how long that may hold up its event loop.

SGLang makes the request in the event loop, so whatever waits here waits for everybody. The prompt is found before, not
behind the deadline: a tokenizer that is given up on would still be decoding when SGLang encodes the next request with
it, and Hugging Face's fast tokenizers then fail SGLang ("Already borrowed").
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Protocol

from laps_sd.data import PromptRequest
from laps_sd.scheduler import Prediction

#: Why a request goes without a prediction; empty where it has one.
UnpredictedReason = Literal["", "no bundle", "busy", "slow", "failed"]


class Bundle(Protocol):
    """The part of `laps_sd.predictors.PredictorBundle` that serving calls."""

    def predict_one(
        self, request: PromptRequest, *, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> Prediction:
        """Return length and acceptance of one request."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt to predict.

    Attributes
    ----------
    prediction : Prediction or None
    reason : str
        Why there is none: ``no bundle``, ``slow``, ``busy`` (an earlier prediction is still running) or ``failed``.
    seconds : float or None
        What it took; None when nothing was tried.
    error : BaseException or None
        With ``failed``.
    """

    prediction: Prediction | None = None
    reason: UnpredictedReason = ""
    seconds: float | None = None
    error: BaseException | None = None


class TimedPredictor:
    """A bundle behind a deadline: the event loop waits for it a bounded time and goes on without it after that.

    Parameters
    ----------
    bundle : Bundle or None
        None: every request is unpredicted.
    timeout_s : float
        Longest wait for one prediction, seconds.
    on_error : callable, optional
        Told of everything that the predictor raises, also after it was given up; called from any thread.
    """

    def __init__(
        self, bundle: Bundle | None, timeout_s: float, on_error: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        self._bundle = bundle
        self._timeout_s = timeout_s
        self._on_error = on_error
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="laps-sd-predict")
        self._running: Future[Prediction] | None = None

    def predict(
        self, request: PromptRequest, *, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> Outcome:
        """Return the prediction, or why there is none in time; never raises."""
        if self._bundle is None:
            return Outcome(reason="no bundle")
        if self._running is not None and not self._running.done():
            return Outcome(reason="busy")  # waiting again for a predictor that hangs would stall every request
        started = perf_counter()
        try:
            self._running = running = self._pool.submit(self._ask, self._bundle, request, draft, max_correct_drafts)
        except RuntimeError as refused:  # no thread to be had
            self._on_error(refused)
            return Outcome(reason="failed", seconds=perf_counter() - started, error=refused)
        try:
            error = running.exception(self._timeout_s)
        except FutureTimeout:
            return Outcome(reason="slow", seconds=perf_counter() - started)
        if error is not None:  # anybody's model: the request must be served all the same
            return Outcome(reason="failed", seconds=perf_counter() - started, error=error)
        return Outcome(running.result(), seconds=perf_counter() - started)

    def _ask(self, bundle: Bundle, request: PromptRequest, draft: str | None, most: int | None) -> Prediction:
        try:
            return bundle.predict_one(request, draft=draft, max_correct_drafts=most)
        except BaseException as error:  # told here, because nobody waits any more for one that was given up
            self._on_error(error)
            raise
