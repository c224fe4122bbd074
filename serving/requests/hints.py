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
    rejected : tuple of str
        Why each hint was not believed: ``not understood`` (no object, or a value of another kind), ``unknown`` (a key
        that is none of ours), ``out of bounds``, ``not allowed`` (priority, where the operator does not trust clients
        with it).
    batch : bool
        The client is in no hurry: the request counts as having arrived later (`batch_delay`).
    """

    expected_output_tokens: float | None = None
    priority: int = 0
    rejected: tuple[str, ...] = ()
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
        return Hints(rejected=("not understood",))
    tokens = said.get("expected_output_tokens")
    priority = said.get("priority")
    batch = said.get("batch")
    known = ("expected_output_tokens", "priority", "batch")
    rejected = ["unknown" for key in said if key not in known]
    if batch is not None and not isinstance(batch, bool):
        rejected.append("not understood")
    length = _number(tokens, 1, config.max_output_tokens, rejected)
    level = None
    if config.priority:
        level = _number(priority, -config.max_priority, config.max_priority, rejected, whole=True)
    elif priority is not None:
        rejected.append("not allowed")
    return Hints(
        expected_output_tokens=length,
        priority=0 if level is None else int(level),
        rejected=tuple(rejected),
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


def _number(value: object, low: float, high: float, rejected: list[str], *, whole: bool = False) -> float | None:
    """Return the value as a number inside the bounds; else None, and why it is none joins ``rejected``."""
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value != value:  # NaN is no number
        rejected.append("not understood")
    elif not low <= value <= high:
        rejected.append("out of bounds")
    elif whole and value != int(value):
        rejected.append("not understood")
    else:
        return float(value)
    return None
