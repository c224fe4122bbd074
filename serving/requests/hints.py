"""What clients may say about their own requests, checked and bounded before anything believes it.

``custom_params: {"laps_sd": {"expected_output_tokens": 200, "priority": 1}}``. A hint that is not understood is ignored
and counted: a request never fails because of us.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from laps_sd.scheduler import Prediction, Settings, SurvivalCurve
from laps_sd.serving.config import HintsConfig
from laps_sd.serving.flags import HINT_KEY


@dataclass(frozen=True, slots=True)
class Hints:
    """Believable hints of one request.

    Attributes
    ----------
    expected_output_tokens : float or None
        The client's own expectation, tokens.
    priority : int
        Higher goes first; 0 when not said. The request's ``priority`` field, where set, counts instead.
    rejected : int
        Hints that were not believable.
    batch : bool
        The client is in no hurry: the request counts as having arrived later (`batch_delay`).
    """

    expected_output_tokens: float | None = None
    priority: int = 0
    rejected: int = 0
    batch: bool = False

    @property
    def of_length(self) -> bool:
        """Whether the client said how long its answer will be."""
        return self.expected_output_tokens is not None


NO_HINTS = Hints()


def read_hints(custom_params: object, config: HintsConfig) -> Hints:
    """Read the hints in a request's ``custom_params``, whatever that is."""
    if not config.enabled or not isinstance(custom_params, Mapping) or HINT_KEY not in custom_params:
        return NO_HINTS
    said = custom_params[HINT_KEY]
    if not isinstance(said, Mapping):
        return Hints(rejected=1)
    tokens = said.get("expected_output_tokens")
    priority = said.get("priority")
    batch = said.get("batch")
    known = ("expected_output_tokens", "priority", "batch")
    unknown = sum(key not in known for key in said) + (batch is not None and not isinstance(batch, bool))
    length = _number(tokens, 1, config.max_output_tokens)
    level = _number(priority, -config.max_priority, config.max_priority) if config.priority else None
    if level is not None and level != int(level):
        level = None
    return Hints(
        expected_output_tokens=length,
        priority=0 if level is None else int(level),
        rejected=unknown + (tokens is not None and length is None) + (priority is not None and level is None),
        batch=batch is True,
    )


def apply_hints(prediction: Prediction | None, hints: Hints, spread: float, settings: Settings) -> Prediction | None:
    """Return the prediction with the client's own length in place of ours, where the client has said one.

    Parameters
    ----------
    spread : float
        Standard deviation of the log length around the hint.
    settings : Settings
        Hold the acceptance prior of requests that nothing was predicted for.
    """
    if hints.expected_output_tokens is None:
        return prediction
    length = SurvivalCurve.lognormal(hints.expected_output_tokens, spread)
    if prediction is None:
        return Prediction(length, settings.accept_length, settings.accept_strength)
    return Prediction(length, prediction.accept_length, prediction.accept_strength)


def _number(value: object, low: float, high: float) -> float | None:
    """Return the value as a number inside the bounds, else None; neither booleans nor NaN are numbers."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if low <= value <= high else None
