"""The tokenizer process's part, free of SGLang's types: predict, read hints, return fields, record what finished."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from laps_sd.data import PromptRequest, canonical
from laps_sd.scheduler import Prediction
from laps_sd.serving.failure_log import FailureLog
from laps_sd.serving.hints import Hints, apply_hints, read_hints
from laps_sd.serving.launch import Launch
from laps_sd.serving.metrics import TokenizerMetrics
from laps_sd.serving.names import META_KEY
from laps_sd.serving.predicting import Bundle, TimedPredictor
from laps_sd.serving.record import Recorder, record_of
from laps_sd.serving.wire import Carried, load_onto

logger = logging.getLogger(__name__)

#: A request with fewer verify steps says little about its accept length.
_MIN_STEPS = 8


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a prediction and a record say about the server: the values of `laps_sd.data.RequestRecord`."""

    model: str | None = None
    draft: str | None = None
    max_correct_drafts: int | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """A request between its arrival and its end; hangs on SGLang's request object as ``laps_sd``.

    Attributes
    ----------
    arrival_s : float
        Seconds since this side was made.
    hinted : bool
        The predicted length is the client's own.
    """

    request: PromptRequest | None
    prediction: Prediction | None
    arrival_s: float
    hinted: bool = False


class TokenizerSide:
    """Predict requests as they are tokenized, and close the loop when they finish.

    Parameters
    ----------
    bundle : Bundle or None
        Loaded predictors; None when the server runs without.
    launch : Launch
        The launch options.
    facts : callable
        Gives the server's facts; called when the first request is there, because SGLang knows them late.
    metrics : callable or None
        Makes the metrics; called likewise. None: the server exports none.
    """

    def __init__(
        self,
        bundle: Bundle | None,
        launch: Launch,
        facts: Callable[[], ServerFacts] = ServerFacts,
        metrics: Callable[[], TokenizerMetrics | None] = lambda: None,
    ) -> None:
        self._config = launch.config
        self._settings = launch.config.settings()
        self._unpredicted = FailureLog(logger, "a request goes unpredicted")
        self._unrecorded = FailureLog(logger, "a finished request was not recorded")
        self._uncounted = FailureLog(logger, "a finished request was not counted")
        self._predictor = TimedPredictor(bundle, launch.config.prediction.timeout_ms / 1000, self._unpredicted.note)
        record = launch.config.record
        self._recorder = None if record.path is None else Recorder(record, self._count_unrecorded)
        self._make_facts, self._make_metrics = facts, metrics
        self._facts: ServerFacts | None = None
        self._metrics: TokenizerMetrics | None = None
        self._started = perf_counter()

    def on_tokenized(
        self, tokenized: Any, tokenizer: Any, obj: Any, text: str | None, token_ids: list[int] | None
    ) -> None:
        """Attach our numbers to a request that goes to the scheduler; never raises."""
        arrival_s = perf_counter() - self._started
        params, request, carried = tokenized.sampling_params, None, Carried()
        try:
            self._bound_priority(tokenized)
            can_carry = load_onto(params, carried)  # whatever fails from here on: what a client forged is gone
            facts = self._look_at_server()
            hints = self._hints(params.custom_params)
            carried = Carried(priority=hints.priority)
            request = as_request(params, tokenizer, text, token_ids, facts.model)
            if can_carry:
                prediction = self._predict(request, facts)
                prediction = apply_hints(prediction, hints, self._config.hints.spread, self._settings)
                carried = Carried(prediction, hints.priority, hints.of_length)
            else:
                self._count("custom_params")
        except Exception as error:  # the client must not learn of our troubles
            self._count("failed")
            self._unpredicted.note(error)
        load_onto(params, carried)
        obj.laps_sd = Pending(request, carried.prediction, arrival_s, carried.hinted)

    def pass_by(self, tokenized: Any) -> None:
        """Let a request through without numbers of ours, and without those that a client forged."""
        self._bound_priority(tokenized)
        load_onto(tokenized.sampling_params, Carried())

    def on_finished(
        self, meta_info: dict[str, Any], obj: Any, fields: dict[str, Any], finish_reason: dict[str, Any] | None
    ) -> None:
        """Put the per-request fields into the response, count errors, record the request; never raises."""
        measured = fields.pop("measured", None)
        meta_info[META_KEY] = fields
        pending: Pending | None = vars(obj).get("laps_sd")
        if pending is None or finish_reason is None:
            return
        try:
            self._count_errors(meta_info, pending, fields, finish_reason)
        except Exception as error:
            self._uncounted.note(error)
        if self._recorder is None:
            return
        try:
            self._record(meta_info, pending, measured or {}, finish_reason)
        except Exception as error:
            self._count_unrecorded(1)
            self._unrecorded.note(error)

    def close(self) -> None:
        """Write what is still to be recorded."""
        if self._recorder is not None:
            self._recorder.close()

    def _look_at_server(self) -> ServerFacts:
        if self._facts is None:
            self._facts = self._make_facts()
            self._metrics = self._make_metrics()
        return self._facts

    def _bound_priority(self, tokenized: Any) -> None:
        """Bound the request's own priority field before the scheduler reads it; nobody else does on such a server."""
        config = self._config.hints
        if not config.request_priority:
            tokenized.priority = None
        elif tokenized.priority is not None:
            tokenized.priority = max(-config.max_priority, min(config.max_priority, tokenized.priority))

    def _hints(self, custom_params: object) -> Hints:
        hints = read_hints(custom_params, self._config.hints)
        if hints.rejected and self._metrics is not None:
            self._metrics.rejected_hints(hints.rejected)
        return hints

    def _predict(self, request: PromptRequest | None, facts: ServerFacts) -> Prediction | None:
        if request is None:
            self._count("no text")
            return None
        outcome = self._predictor.predict(request, draft=facts.draft, max_correct_drafts=facts.max_correct_drafts)
        if outcome.prediction is None:
            self._count(outcome.reason)
        if outcome.seconds is not None and self._metrics is not None:
            self._metrics.predicted(outcome.seconds)
        return outcome.prediction

    def _count(self, reason: str) -> None:
        if self._metrics is not None:
            self._metrics.unpredicted(reason)

    def _count_unrecorded(self, count: int) -> None:
        if self._metrics is not None:
            self._metrics.unrecorded(count)

    def _count_errors(
        self, meta: dict[str, Any], pending: Pending, fields: dict[str, Any], finish_reason: dict[str, Any]
    ) -> None:
        if self._metrics is None:
            return
        if pending.prediction is not None and not pending.hinted and finish_reason["type"] == "stop":
            # The median, as in `laps-sd evaluate`: log_mae there and this histogram are one figure.
            self._metrics.length_error(pending.prediction.length.quantile(0.5), meta["completion_tokens"])
        if fields["predicted_accept_length"] is not None and fields["accept_length"] and fields["steps"] >= _MIN_STEPS:
            self._metrics.accept_error(fields["predicted_accept_length"], fields["accept_length"])

    def _record(
        self, meta: dict[str, Any], pending: Pending, measured: dict[str, Any], finish_reason: dict[str, Any]
    ) -> None:
        assert self._recorder is not None
        request = pending.request or PromptRequest(prompt="")
        if measured.get("max_new_tokens", request.max_new_tokens) == 0:
            return  # a warm-up, or nothing asked for: not an answer
        record = record_of(
            meta,
            request,
            measured,
            finish_reason=finish_reason["type"],
            facts=self._facts or ServerFacts(),
            arrival_s=pending.arrival_s,
            e2e_s=perf_counter() - self._started - pending.arrival_s,
            **self._recorder.prompt_fields(request.prompt),
        )
        self._recorder.add(record)


def as_request(
    params: Any, tokenizer: Any, text: str | None, token_ids: list[int] | None, model: str | None = None
) -> PromptRequest | None:
    """What is known of a request at its arrival; None for one without text (embeddings as input)."""
    if isinstance(text, str):
        prompt = canonical(text=text, tokenizer=tokenizer)
    elif token_ids is not None and tokenizer is not None:
        prompt = canonical(token_ids=token_ids, tokenizer=tokenizer)
    else:
        return None
    return PromptRequest(
        prompt=prompt.text,
        prompt_tokens=None if token_ids is None else len(token_ids),
        max_new_tokens=params.max_new_tokens,
        # SGLang has turned temperature 0 into "the best token at temperature 1" by now.
        temperature=0.0 if params.top_k == 1 else params.temperature,
        model=model,
        turns=prompt.turns,
    )
