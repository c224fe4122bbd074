"""What the two processes of SGLang tell each other about a request.

To the scheduler goes an `Attachment`, in ``sampling_params.custom_params``: numbers, lists of numbers and one nested
dict, which SGLang lets through. Custom logit processors and structured output read the same dict, so ours is taken off
again before they see the request. Back with the answer come the `ResponseFields`; with an abort they come in its
reason, as one string, because SGLang sends nothing else along.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NotRequired, TypedDict, cast

from laps_sd.scheduler import Prediction
from laps_sd.serving.engine import Abort, SamplingParams
from laps_sd.serving.flags import META_KEY, WIRE_KEY


@dataclass(frozen=True, slots=True)
class Attachment:
    """Our numbers on one request, from the tokenizer process to the scheduler.

    Attributes
    ----------
    prediction : Prediction or None
        Length and accept length; None: the request ranks as unpredicted.
    priority : int
        The client's hint; higher goes first.
    hinted : bool
        The predicted length is the client's hint too.
    batch : bool
        The client is in no hurry.
    fallen_back : bool
        A hook of the tokenizer process failed: schedule with fcfs from this request on. All ranks see it with the same
        request.
    """

    prediction: Prediction | None = None
    priority: int = 0
    hinted: bool = False
    fallen_back: bool = False
    batch: bool = False


class Measurements(TypedDict, total=False):
    """What only the scheduler process knows of a finished request; for its record.

    Attributes
    ----------
    queue_s, ttft_s : float or None
        Seconds until it got a slot, and until its first token.
    max_new_tokens : int or None
        Its limit as the scheduler saw it.
    correct_drafts_histogram : list of int
        How many verify steps accepted 0, 1, 2 … drafts; this and the next two where any drafts were verified.
    accept_lengths, draft_lengths : list of int
        Tokens of each verify step, and drafts proposed in it.
    slots : list of [float, float or None]
        From when to when it held a slot, seconds after it was received; the last one until its end.
    progress : list of int
        What its answer had said at checkpoints; this and the next where answers are counted.
    progress_table : str
        What counted.
    """

    queue_s: float | None
    ttft_s: float | None
    max_new_tokens: int | None
    correct_drafts_histogram: list[int]
    accept_lengths: list[int]
    draft_lengths: list[int]
    slots: list[tuple[float, float | None]]
    progress: list[int]
    progress_table: str


class ResponseFields(TypedDict):
    """``meta_info["laps_sd"]`` of a response; docs/serving.md says what each field means.

    ``measured`` is for the record and is taken out before the client sees the rest.
    """

    predicted_tokens: float | None
    predicted_accept_length: float | None
    accept_length: float | None
    steps: int
    level: int
    preemptions: int
    recomputed_tokens: int
    priority: int
    refinements: int
    refined_tokens: float | None
    measured: NotRequired[Measurements]


def attach(sampling_params: SamplingParams, attachment: Attachment) -> bool:
    """Attach our numbers to a request; a copy of our key that the client sent is overwritten, its own dict left alone.

    Returns
    -------
    bool
        False: the client sent something else than a dict, which SGLang lets through. Nothing can be attached to it, it
        is left as it is, and `detach` finds nothing in it.
    """
    own = sampling_params.custom_params
    if own is not None and not isinstance(own, Mapping):
        return False
    wire: dict[str, object] = {} if attachment.prediction is None else dict(attachment.prediction.to_wire())
    if attachment.priority:
        wire["priority"] = attachment.priority
    if attachment.hinted:
        wire["hinted"] = True
    if attachment.batch:
        wire["batch"] = True
    if attachment.fallen_back:
        wire["fallen_back"] = True
    sampling_params.custom_params = {**(own or {}), WIRE_KEY: wire}
    return True


def detach(sampling_params: SamplingParams) -> Attachment:
    """Take our numbers off a request and return them, leaving ``custom_params`` as the client sent it."""
    params = sampling_params.custom_params
    if not isinstance(params, Mapping) or WIRE_KEY not in params:
        return Attachment()
    wire = params[WIRE_KEY]
    rest = {key: value for key, value in params.items() if key != WIRE_KEY}
    sampling_params.custom_params = rest or None
    return read_wire(wire)


def read_wire(wire: object) -> Attachment:
    """Read what `attach` wrote; what is not that counts as nothing."""
    if not isinstance(wire, Mapping):
        return Attachment()
    priority = wire.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        priority = 0
    try:
        prediction = Prediction.from_wire(wire) if "edges" in wire else None
    except ValueError:
        prediction = None
    hinted, fallen_back, batch = (wire.get(key) is True for key in ("hinted", "fallen_back", "batch"))
    return Attachment(prediction, priority, hinted, fallen_back, batch)


def attach_to_abort(abort: Abort, fields: ResponseFields) -> None:
    """Send our fields along with an abort; the reason is the one that SGLang would give, where it gives none."""
    message = abort.abort_message or "Abort in waiting queue"
    abort.finished_reason = {
        **(abort.finished_reason or {"type": "abort", "message": message}),
        META_KEY: json.dumps(fields),
    }


def detach_from_abort(abort: Abort) -> ResponseFields | None:
    """Take our fields off an abort; None where there are none."""
    reason = abort.finished_reason
    if reason is None or META_KEY not in reason:
        return None
    abort.finished_reason = {name: value for name, value in reason.items() if name != META_KEY}
    return cast(ResponseFields, json.loads(str(reason[META_KEY])))
