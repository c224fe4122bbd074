"""Predicting one request in the tokenizer process, with a limit on how long that may hold it up."""

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from time import perf_counter
from typing import Protocol

from laps_sd.data import PromptRequest
from laps_sd.scheduler import Prediction


class Bundle(Protocol):
    """The part of `laps_sd.predictors.PredictorBundle` that serving calls."""

    def predict_one(
        self, request: PromptRequest, *, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> Prediction: ...


class TimedPredictor:
    """A bundle behind a deadline: a request waits for it a bounded time and goes on without it after that.

    Parameters
    ----------
    bundle : Bundle or None
        None: every request is unpredicted.
    timeout_s : float
        Longest wait for one prediction, seconds.

    Attributes
    ----------
    unpredicted : Counter
        Requests without a prediction by reason: ``no bundle``, ``slow``, ``busy`` (an earlier one is still running)
        or ``failed``.
    last_s : float or None
        What the last call took, seconds.
    """

    def __init__(self, bundle: Bundle | None, timeout_s: float) -> None:
        self._bundle = bundle
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="laps-sd-predict")
        self._running: Future[Prediction] | None = None
        self.unpredicted: Counter[str] = Counter()
        self.last_s: float | None = None
        self.last_error: Exception | None = None

    def predict(
        self, request: PromptRequest, *, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> Prediction | None:
        """Return the prediction, or None when there is none in time; never raises."""
        if self._bundle is None:
            self.unpredicted["no bundle"] += 1
            return None
        if self._running is not None and not self._running.done():
            self.unpredicted["busy"] += 1  # waiting again for a predictor that hangs would stall every request
            return None
        started = perf_counter()
        try:
            self._running = self._pool.submit(
                self._bundle.predict_one, request, draft=draft, max_correct_drafts=max_correct_drafts
            )
            return self._running.result(self._timeout_s)
        except FutureTimeout:
            self.unpredicted["slow"] += 1
        except Exception as error:  # the predictor is anybody's model; the request must be served all the same
            self.last_error = error
            self.unpredicted["failed"] += 1
        finally:
            self.last_s = perf_counter() - started
        return None
