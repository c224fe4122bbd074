"""Why one recorded request waited: who held the slots, who went before it, and what was predicted of each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from laps_sd.data import RequestRecord
from laps_sd.errors import InputError

#: Key of a record's ``extra`` under which the server's own recorder keeps what laps-sd knew.
STORY_KEY = "laps_sd"
#: Requests that are named; the others are counted.
_NAMED = 10


@dataclass(frozen=True, slots=True)
class Story:
    """What a trace tells of the way of one request.

    Attributes
    ----------
    request_id : str
    arrival_s, start_s, end_s : float
        Its arrival, its first slot and its end, seconds since the trace began.
    output_tokens : int
    predicted_tokens : float or None
        Expected output at its arrival; None: nothing was predicted, or the trace does not say.
    priority : int
    slots : tuple of (float, float)
        From when to when it held a slot; the first from its start to its end where the trace says no more.
    """

    request_id: str
    arrival_s: float
    start_s: float
    end_s: float
    output_tokens: int
    predicted_tokens: float | None
    priority: int
    slots: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Before:
    """A request that got a slot while another one waited.

    Attributes
    ----------
    story : Story
    why : str
        What the trace tells of the reason.
    """

    story: Story
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request waited.

    Attributes
    ----------
    request : Story
    holding : tuple of Story
        Who held a slot when it arrived.
    before : tuple of Before
        Who got a slot between its arrival and its own first slot, in that order.
    preempted : tuple of (float, float, tuple of Before)
        Each time that it was without the slot it had had: from, to, and who got a slot then.
    """

    request: Story
    holding: tuple[Story, ...]
    before: tuple[Before, ...]
    preempted: tuple[tuple[float, float, tuple[Before, ...]], ...]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return asdict(self)


def explain(records: Iterable[RequestRecord], request_id: str) -> Explanation:
    """Find out from a trace why a request waited.

    Parameters
    ----------
    records : iterable of RequestRecord
        All requests of one server, in any order; those without arrival or queue time are passed over.
    request_id : str
        Whom to explain.

    Raises
    ------
    InputError
        There is no such request, or the trace does not say when it arrived and got its slot.
    """
    stories, found = [], False
    for record in records:
        found = found or record.request_id == request_id
        story = _story(record)
        if story is not None:
            stories.append(story)
    ours = next((story for story in stories if story.request_id == request_id), None)
    if ours is None:
        if not found:
            raise InputError(f"there is no request {request_id!r} in the trace")
        raise InputError(
            f"the trace does not say when {request_id!r} arrived, got a slot and ended (arrival_s, queue_s, e2e_s); "
            "the server's own recorder (record.path) writes them"
        )
    others = [story for story in stories if story is not ours]
    lost = zip(ours.slots, ours.slots[1:], strict=False)
    return Explanation(
        ours,
        tuple(other for other in others if any(a <= ours.arrival_s < b for a, b in other.slots)),
        tuple(_started(others, ours, ours.arrival_s, ours.start_s)),
        tuple((end, start, tuple(_started(others, ours, end, start))) for (_, end), (start, _) in lost),
    )


def sentences(found: Explanation) -> Iterator[str]:
    """Tell it in plain words, a line each."""
    ours = found.request
    yield (
        f"{ours.request_id} came at {ours.arrival_s:.2f} s, waited {ours.start_s - ours.arrival_s:.2f} s for a slot, "
        f"and ended {ours.end_s - ours.arrival_s:.2f} s after it came."
    )
    yield f"It produced {ours.output_tokens} tokens; {_predicted(ours)}."
    if found.holding:
        yield f"When it came, {_many(len(found.holding), 'request')} held a slot: {_names(found.holding)}."
    if not found.before:
        yield "Nobody got a slot between its arrival and its own."
    else:
        yield f"{_many(len(found.before), 'request')} got a slot while it waited:"
        yield from _lines(found.before, ours)
    for lost, back, meanwhile in found.preempted:
        yield (
            f"It lost its slot {lost - ours.arrival_s:.2f} s after it came, for {back - lost:.2f} s, in which "
            f"{_many(len(meanwhile), 'request')} got one{':' if meanwhile else '.'}"
        )
        yield from _lines(meanwhile, ours)


def _lines(before: Sequence[Before], ours: Story) -> Iterator[str]:
    for one in before[:_NAMED]:
        story = one.story
        yield (
            f"  {story.request_id} ({story.start_s - ours.arrival_s:.2f} s after it came): {one.why}; "
            f"{_predicted(story)}, {story.output_tokens} tokens in the end"
        )
    if len(before) > _NAMED:
        yield f"  and {len(before) - _NAMED} more"


def _started(others: Iterable[Story], ours: Story, since: float, until: float) -> list[Before]:
    """Who got a slot in that time, the first one first; one who came back counts as well."""
    starts = ((start, other) for other in others for start, _ in other.slots if since <= start < until)
    return [Before(other, _why(other, ours)) for _, other in sorted(starts, key=lambda pair: pair[0])]


def _why(other: Story, ours: Story) -> str:
    """What the trace tells of why ``other`` went first; the order itself looks at more."""
    if other.priority != ours.priority:
        return f"its priority was {'higher' if other.priority > ours.priority else 'lower'}"
    theirs, own = other.predicted_tokens, ours.predicted_tokens
    if theirs is not None and own is not None and theirs < own:
        return "it was predicted to be shorter"
    if other.arrival_s < ours.arrival_s:
        return "it had come earlier"
    if theirs is None or own is None:
        return "it came later, and what was predicted is not known of both"
    return "it came later and was predicted to be no shorter: its acceptance, its progress or free KV memory decided"


def _story(record: RequestRecord) -> Story | None:
    if record.arrival_s is None or record.queue_s is None or record.e2e_s is None:
        return None
    told = record.extra.get(STORY_KEY)
    told = told if isinstance(told, Mapping) else {}
    arrival, end = record.arrival_s, record.arrival_s + record.e2e_s
    start = arrival + record.queue_s
    predicted, priority, spans = told.get("predicted_tokens"), told.get("priority"), told.get("slots")
    slots = [(arrival + float(a), end if b is None else arrival + float(b)) for a, b in _pairs(spans)]
    return Story(
        record.request_id,
        arrival,
        start,
        end,
        record.output_tokens,
        float(predicted) if isinstance(predicted, (int, float)) else None,
        priority if isinstance(priority, int) else 0,
        tuple(slots) or ((start, end),),
    )


def _pairs(spans: object) -> list[tuple[float, float | None]]:
    """Return spans that a file may say anything about; none where they are not pairs of numbers."""
    if not isinstance(spans, (list, tuple)):
        return []
    pairs = [tuple(span) for span in spans if isinstance(span, (list, tuple)) and len(span) == 2]
    numbers = all(isinstance(a, (int, float)) and (b is None or isinstance(b, (int, float))) for a, b in pairs)
    return [(a, b) for a, b in pairs] if numbers and len(pairs) == len(spans) else []


def _predicted(story: Story) -> str:
    tokens = story.predicted_tokens
    return "nothing is recorded of a prediction" if tokens is None else f"predicted were {tokens:.0f}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _names(stories: Sequence[Story]) -> str:
    names = ", ".join(story.request_id for story in stories[:_NAMED])
    return names if len(stories) <= _NAMED else f"{names} and {len(stories) - _NAMED} more"
