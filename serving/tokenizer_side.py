"""The tokenizer process's part, free of SGLang's types: attach predictions, read hints, return per-request fields."""

import logging
from typing import Any

from laps_sd.data import PromptRequest, canonical
from laps_sd.serving.hints import apply_hints, read_hints
from laps_sd.serving.launch import Launch
from laps_sd.serving.names import META_KEY
from laps_sd.serving.predicting import Bundle, TimedPredictor
from laps_sd.serving.wire import Carried, load_onto

logger = logging.getLogger(__name__)


class TokenizerSide:
    """Predict requests as they are tokenized.

    Parameters
    ----------
    bundle : Bundle or None
        Loaded predictors; None when the server runs without.
    launch : Launch
        The launch options.
    """

    def __init__(self, bundle: Bundle | None, launch: Launch) -> None:
        self._config = launch.config
        self._settings = launch.config.settings()
        self.predictor = TimedPredictor(bundle, launch.config.prediction.timeout_ms / 1000)

    def on_tokenized(
        self, tokenized: Any, tokenizer: Any, obj: Any, text: str | None, token_ids: list[int] | None
    ) -> None:
        """Attach our numbers to a request that goes to the scheduler; never raises."""
        params = tokenized.sampling_params
        if not hasattr(tokenized, "stream"):  # an embedding request: it produces no tokens
            return
        try:
            load_onto(params, self._carried(params, tokenizer, text, token_ids))
        except Exception as error:
            self.predictor.unpredicted["failed"] += 1
            self.predictor.last_error = error
            load_onto(params, Carried())
            logger.warning("laps-sd: a request goes unpredicted (%s: %s)", type(error).__name__, error)

    def _carried(self, params: Any, tokenizer: Any, text: str | None, token_ids: list[int] | None) -> Carried:
        hints = read_hints(params.custom_params, self._config.hints)
        request = as_request(params, tokenizer, text, token_ids)
        prediction = None if request is None else self.predictor.predict(request)
        return Carried(apply_hints(prediction, hints, self._config.hints.spread, self._settings), hints.priority)

    def on_finished(
        self, meta_info: dict[str, Any], obj: Any, fields: dict[str, Any], finish_reason: dict[str, Any] | None
    ) -> None:
        """Put the per-request fields into the response."""
        meta_info[META_KEY] = fields


def as_request(params: Any, tokenizer: Any, text: str | None, token_ids: list[int] | None) -> PromptRequest | None:
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
        temperature=params.temperature,
        turns=prompt.turns,
    )
