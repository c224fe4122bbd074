"""The tokenizer process's part, free of SGLang's types: predict, read hints, return fields, record what finished."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter
from typing import Literal, cast

from laps_sd.data import PromptRequest
from laps_sd.data.canonical import read_rendered
from laps_sd.data.meta_info import constraint_of
from laps_sd.data.rendered import thinking_of
from laps_sd.data.tokenizer import Tokenizer
from laps_sd.scheduler import Prediction
from laps_sd.serving.engine import FinishReason, MetaInfo, ReceivedRequest, SamplingParams, TokenizedRequest
from laps_sd.serving.failure_log import FailureLog
from laps_sd.serving.flags import META_KEY
from laps_sd.serving.launch import Launch
from laps_sd.serving.monitoring.metrics import TokenizerMetrics
from laps_sd.serving.requests.exchange import Attachment, Measurements, ResponseFields, attach
from laps_sd.serving.requests.hints import Hints, apply_hints, read_hints
from laps_sd.serving.requests.predicting import Bundle, TimedPredictor
from laps_sd.serving.requests.record import Recorder, ServerFacts, finished_record

logger = logging.getLogger(__name__)

#: A request with fewer verify steps says little about its accept length.
_MIN_STEPS = 8


@dataclass(frozen=True, slots=True)
class TokenizerRequest:
    """Our record of a request in the tokenizer process; hangs on SGLang's request object as ``laps_sd``.

    Attributes
    ----------
    request : PromptRequest or None
        What was known at its arrival; None: it has no text.
    prediction : Prediction or None
        What goes to the scheduler.
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
        self,
        tokenized: TokenizedRequest,
        tokenizer: Tokenizer | None,
        obj: ReceivedRequest,
        text: str | None,
        token_ids: Sequence[int] | None,
    ) -> None:
        """Attach our numbers to a request that goes to the scheduler; never raises."""
        arrival_s = perf_counter() - self._started
        params, request, attachment = tokenized.sampling_params, None, Attachment()
        try:
            self._bound_priority(tokenized)
            attachable = attach(params, attachment)  # whatever fails from here on: what a client forged is gone
            facts = self._look_at_server()
            hints = self._hints(params.custom_params)
            attachment = Attachment(priority=hints.priority, batch=hints.batch)
            request = as_request(tokenized, tokenizer, text, token_ids, facts.model)
            if attachable:
                prediction = self._predict(request, facts)
                prediction = apply_hints(prediction, hints, self._config.hints.spread, self._settings)
                attachment = Attachment(prediction, hints.priority, hints.of_length, batch=hints.batch)
            else:
                self._count("custom_params")
        except Exception as error:  # the client must not learn of our troubles
            self._count("failed")
            self._unpredicted.note(error)
        attach(params, attachment)
        obj.laps_sd = TokenizerRequest(request, attachment.prediction, arrival_s, attachment.hinted)

    def pass_by(self, tokenized: TokenizedRequest) -> None:
        """Let a request through without numbers of ours, and without those that a client forged."""
        self._bound_priority(tokenized)
        attach(tokenized.sampling_params, Attachment())

    def on_finished(
        self, meta_info: MetaInfo, obj: ReceivedRequest, fields: ResponseFields, finish_reason: FinishReason | None
    ) -> None:
        """Put the per-request fields into the response, count errors, record the request; never raises."""
        measured = fields.pop("measured", Measurements())
        meta_info[META_KEY] = fields
        ours: TokenizerRequest | None = vars(obj).get("laps_sd")
        if ours is None or finish_reason is None:
            return
        try:
            self._count_errors(meta_info, ours, fields, finish_reason)
        except Exception as error:
            self._uncounted.note(error)
        if self._recorder is None:
            return
        try:
            self._record(self._recorder, meta_info, ours, fields, measured, finish_reason)
        except Exception as error:
            self._count_unrecorded(1)
            self._unrecorded.note(error)

    def stand_down(self, hook: str) -> None:
        """Our hook of this name failed, and nobody is told of requests any more: say so."""
        if self._metrics is not None:
            self._metrics.fell_back(hook)

    def close(self) -> None:
        """Write what is still to be recorded."""
        if self._recorder is not None:
            self._recorder.close()

    def _look_at_server(self) -> ServerFacts:
        if self._facts is None:
            self._facts = self._make_facts()
            self._metrics = self._make_metrics()
        return self._facts

    def _bound_priority(self, tokenized: TokenizedRequest) -> None:
        """Bound the request's own priority field before the scheduler reads it; nobody else does on such a server."""
        config = self._config.hints
        if not (config.enabled and config.priority and config.request_priority):
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
        self, meta: MetaInfo, ours: TokenizerRequest, fields: ResponseFields, finish_reason: FinishReason
    ) -> None:
        if self._metrics is None:
            return
        own_length = ours.request is None or not ours.request.ignore_eos
        if ours.prediction is not None and not ours.hinted and own_length and finish_reason["type"] == "stop":
            # The median, as in `laps-sd evaluate`: log_mae there and this histogram are one figure.
            self._metrics.length_error(ours.prediction.length.quantile(0.5), meta["completion_tokens"])
        if fields["predicted_accept_length"] is not None and fields["accept_length"] and fields["steps"] >= _MIN_STEPS:
            self._metrics.accept_error(fields["predicted_accept_length"], fields["accept_length"])

    def _record(
        self,
        recorder: Recorder,
        meta: MetaInfo,
        ours: TokenizerRequest,
        fields: ResponseFields,
        measured: Measurements,
        finish_reason: FinishReason,
    ) -> None:
        request = ours.request or PromptRequest(prompt="")
        if measured.get("max_new_tokens", request.max_new_tokens) == 0:
            return  # a warm-up, or nothing asked for: not an answer
        if finish_reason.get("status_code") == HTTPStatus.BAD_REQUEST:
            return  # refused (a grammar that does not compile): SGLang ends it with a prompt and an answer of one token
        record = finished_record(
            meta,
            request,
            measured,
            fields,
            finish_reason=cast(Literal["stop", "length", "abort"], finish_reason["type"]),
            facts=self._facts or ServerFacts(),
            arrival_s=ours.arrival_s,
            e2e_s=perf_counter() - self._started - ours.arrival_s,
            **recorder.prompt_fields(request.prompt),
        )
        recorder.add(record)


def as_request(
    tokenized: TokenizedRequest,
    tokenizer: Tokenizer | None,
    text: str | None,
    token_ids: Sequence[int] | None,
    model: str | None = None,
) -> PromptRequest | None:
    """Return what is known of a request at its arrival; None for one without text (embeddings as input).

    Tools and the switch of thinking are in the rendered prompt only; ``tool_choice`` is a constraint beside tools where
    it makes the answer call one, and takes the tools out of the prompt where it is ``none``.
    """
    if isinstance(text, str):
        prompt, shown = read_rendered(text=text, tokenizer=tokenizer)
    elif token_ids is not None and tokenizer is not None:
        prompt, shown = read_rendered(token_ids=token_ids, tokenizer=tokenizer)
    else:
        return None
    params = tokenized.sampling_params
    return PromptRequest(
        prompt=prompt.text,
        prompt_tokens=None if token_ids is None else len(token_ids),
        max_new_tokens=params.max_new_tokens,
        # SGLang has turned temperature 0 into "the best token at temperature 1" by now.
        temperature=0.0 if params.top_k == 1 else params.temperature,
        model=model,
        turns=prompt.turns,
        constraint=_constraint(params),
        tools=shown.tools,
        thinking=thinking_of(shown, tokenized.require_reasoning),
        ignore_eos=params.ignore_eos,
    )


def _constraint(params: SamplingParams) -> str | None:
    held_to = {"regex": params.regex, "json_schema": params.json_schema, "ebnf": params.ebnf}
    return constraint_of({**held_to, "structural_tag": params.structural_tag})
