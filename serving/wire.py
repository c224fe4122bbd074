"""What travels with a request from the tokenizer process to the scheduler, in ``sampling_params.custom_params``.

Numbers, lists of numbers and one nested dict: what SGLang lets through. Custom logit processors and structured output
read the same dict, so ours is taken off again before they see the request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from laps_sd.scheduler import Prediction
from laps_sd.serving.names import WIRE_KEY


@dataclass(frozen=True, slots=True)
class Carried:
    """Our numbers on one request.

    Attributes
    ----------
    prediction : Prediction or None
    priority : int
        The client's hint; higher goes first.
    hinted : bool
        The predicted length is the client's hint too.
    """

    prediction: Prediction | None = None
    priority: int = 0
    hinted: bool = False


def load_onto(sampling_params: Any, carried: Carried) -> bool:
    """Attach ``carried``; a copy of our key that the client sent is overwritten, its own dict is left alone.

    False: the client sent something else than a dict, which SGLang lets through. Nothing can be attached to it, it is
    left as it is, and `take_off` finds nothing in it.
    """
    own = sampling_params.custom_params
    if own is not None and not isinstance(own, Mapping):
        return False
    wire: dict[str, Any] = {} if carried.prediction is None else dict(carried.prediction.to_wire())
    if carried.priority:
        wire["priority"] = carried.priority
    if carried.hinted:
        wire["hinted"] = True
    sampling_params.custom_params = {**(own or {}), WIRE_KEY: wire}
    return True


def take_off(sampling_params: Any) -> Carried:
    """Detach and return what was carried, leaving ``custom_params`` as the client sent it."""
    params = sampling_params.custom_params
    if not isinstance(params, Mapping) or WIRE_KEY not in params:
        return Carried()
    wire = params[WIRE_KEY]
    rest = {key: value for key, value in params.items() if key != WIRE_KEY}
    sampling_params.custom_params = rest or None
    return read_wire(wire)


def read_wire(wire: object) -> Carried:
    """Read what `load_onto` wrote; what is not that counts as nothing."""
    if not isinstance(wire, Mapping):
        return Carried()
    priority = wire.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        priority = 0
    try:
        prediction = Prediction.from_wire(wire) if "edges" in wire else None
    except ValueError:
        prediction = None
    return Carried(prediction, priority, wire.get("hinted") is True)
