"""A client of a soak: asks one question in one of many manners, and says how that ended."""

import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
from soak_questions import PATHS, Json, Question

from laps_sd.serving.flags import HINT_KEY, META_KEY, WIRE_KEY

Manner = Literal["waits", "hangs up", "gives up", "gives up and aborts", "aborts"]
#: How often clients behave like this.
MANNERS: dict[Manner, int] = {"waits": 70, "hangs up": 10, "gives up": 5, "gives up and aborts": 5, "aborts": 10}
#: Longest that a client waits for an answer, seconds: whoever waits longer has lost it.
PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of the soak.

    Attributes
    ----------
    number : int
        Its number in the soak.
    question : Question
    manner : str
        How the client behaves.
    custom_params, priority
        What it says about itself.
    stream : bool
        Whether it asks for a stream.
    after_s, after_events : float, int
        When it loses its patience: after these seconds, or so many events of the stream.
    """

    number: int
    question: Question
    manner: Manner
    custom_params: object
    priority: int | None
    stream: bool
    after_s: float
    after_events: int

    @property
    def rid(self) -> str:
        """Its request id. SGLang aborts all that begin alike, so none begins with another."""
        return f"soak-{self.number:07d}-"


@dataclass(slots=True)
class Ending:
    """How one visit ended.

    Attributes
    ----------
    how : str
        ``answered``, ``aborted``, ``left`` (the client went away), ``refused`` (a status of 400 to 499), ``failed``.
    answers : list
        What came, one for each sample: text, token ids where the endpoint gives them, and why it ended.
    detail : str
        A status or an error.
    preemptions : int
        How often it lost its slot, as the answer says.
    """

    how: Literal["answered", "aborted", "left", "refused", "failed"]
    answers: list[Json] = field(default_factory=list)
    detail: str = ""
    preemptions: int = 0


def draw_hint(rng: random.Random) -> object:
    """Something that a client may say in ``custom_params``: mostly sense, often a lie, sometimes an attack."""
    tokens = rng.choice((1, 5, 30, 400))
    return rng.choice(
        [
            None,
            {HINT_KEY: {"expected_output_tokens": tokens}},
            {HINT_KEY: {"expected_output_tokens": tokens}},
            {HINT_KEY: {"priority": rng.randint(-3, 3)}},
            {HINT_KEY: {"priority": rng.choice((50, 99)), "expected_output_tokens": tokens}},
            {HINT_KEY: {"expected_output_tokens": -1, "priority": 10**9, "x": [{}]}},
            {HINT_KEY: rng.choice(["nonsense", [], 7, None, {"expected_output_tokens": "5", "priority": True}])},
            {WIRE_KEY: {"edges": "forged", "priority": 99, "fallen_back": True}, "thinking_budget": 5},
            {WIRE_KEY: {"edges": [0, 1e308], "survival": [1, -1], "accept_length": 0, "accept_strength": -5}},
        ]
    )


def draw_visits(questions: list[Question], count: int, seed: int) -> list[Visit]:
    """Return ``count`` visits, each with one of ``questions``; the same ones for the same seed."""
    rng = random.Random(seed)  # noqa: S311
    visits = []
    for number in range(count):
        manner: Manner = rng.choices(list(MANNERS), list(MANNERS.values()))[0]
        visits.append(
            Visit(
                number=number,
                question=rng.choice(questions),
                manner=manner,
                custom_params=draw_hint(rng),
                priority=rng.choice((None, None, None, rng.randint(-5, 5), 10**6)),
                stream=manner == "hangs up" or rng.random() < 0.4,
                after_s=rng.choice((0.02, 0.1, 0.5, 2.0, 4.0)),
                after_events=rng.choice((0, 1, 2, 6)),
            )
        )
    return visits


def ask(url: str, visit: Visit) -> Ending:
    """Make the visit; whatever the server does is an ending, never an exception."""
    body = visit.question.body(visit.rid, visit.custom_params, visit.priority, stream=visit.stream)
    timeout = visit.after_s if visit.manner.startswith("gives up") else PATIENCE_S
    abort = threading.Timer(visit.after_s, abort_request, (url, visit.rid)) if visit.manner == "aborts" else None
    try:
        if abort is not None:
            abort.start()
        with httpx.Client(timeout=httpx.Timeout(timeout, connect=PATIENCE_S), trust_env=False) as client:
            return _asked(client, url + PATHS[visit.question.endpoint], body, visit)
    except httpx.TimeoutException as error:
        if not visit.manner.startswith("gives up"):
            return Ending("failed", detail=f"no answer within {PATIENCE_S:.0f} s ({type(error).__name__})")
        if visit.manner == "gives up and aborts":
            abort_request(url, visit.rid)
        return Ending("left")
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return Ending("failed", detail=f"{type(error).__name__}: {error}")
    finally:
        if abort is not None:
            abort.join()


def abort_request(url: str, rid: str) -> None:
    """Abort a request, as another connection of the same client does; whether it is there still is nobody's fault."""
    try:
        httpx.post(url + "/abort_request", json={"rid": rid}, timeout=PATIENCE_S, trust_env=False)
    except httpx.HTTPError:  # the request itself will tell
        return


def _asked(client: httpx.Client, address: str, body: Json, visit: Visit) -> Ending:
    if not visit.stream:
        answer = client.post(address, json=body)
        return _ending(answer.status_code, answer.json() if answer.status_code == 200 else answer.text)
    until = time.monotonic() + visit.after_s if visit.manner.startswith("gives up") else float("inf")
    with client.stream("POST", address, json=body) as stream:
        if stream.status_code != 200:
            return _ending(stream.status_code, stream.read().decode(errors="replace"))
        events = []
        for event in _events(stream):
            events.append(event)
            if time.monotonic() > until:
                raise httpx.ReadTimeout("the client's patience is over")
            if visit.manner == "hangs up" and len(events) > visit.after_events:
                return Ending("left")
    return _ending_of_stream(events)


def _events(stream: httpx.Response) -> Iterator[Json]:
    for line in stream.iter_lines():
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            yield json.loads(line[5:])


def _ending(status: int, content: Any) -> Ending:
    if status != 200:
        how: Literal["aborted", "refused", "failed"] = "refused" if 400 <= status < 500 else "failed"
        return Ending("aborted" if "abort" in content.lower() else how, detail=f"status {status}: {content[:300]}")
    if isinstance(content, dict) and "choices" in content:
        return _judged([_of_choice(choice) for choice in content["choices"]])
    return _judged([_of_generate(one) for one in (content if isinstance(content, list) else [content])])


def _ending_of_stream(events: list[Json]) -> Ending:
    answers: dict[int, Json] = {}
    for event in events:
        if "error" in event:
            error = event["error"]
            status = error.get("code") if isinstance(error, dict) else None
            return _ending(status if isinstance(status, int) else 500, json.dumps(error))
        for choice in event.get("choices", ()):  # of the OpenAI endpoints: each event adds some text
            before = answers.setdefault(choice["index"], {"text": "", "ids": None, "end": None, "preemptions": 0})
            before["text"] += choice.get("text") or choice.get("delta", {}).get("content") or ""
            before["end"] = choice.get("finish_reason") or before["end"]
        if "meta_info" in event:  # of /generate: each event holds the answer so far
            answers[event.get("index", 0)] = _of_generate(event)
    return _judged([answers[index] for index in sorted(answers)])


def _of_choice(choice: Json) -> Json:
    text = choice["text"] if "text" in choice else choice["message"]["content"] or ""
    return {"text": text, "ids": None, "end": choice["finish_reason"], "preemptions": 0}


def _of_generate(answer: Json) -> Json:
    meta = answer["meta_info"]
    end = (meta.get("finish_reason") or {}).get("type")
    preemptions = (meta.get(META_KEY) or {}).get("preemptions", 0)
    return {"text": answer.get("text") or "", "ids": answer["output_ids"], "end": end, "preemptions": preemptions}


def _judged(answers: list[Json]) -> Ending:
    preemptions = sum(answer.pop("preemptions") for answer in answers)
    if any(answer["end"] == "abort" for answer in answers):
        return Ending("aborted", answers, preemptions=preemptions)
    if not answers or any(answer["end"] is None for answer in answers):
        return Ending("failed", answers, "a stream that ends before its answer", preemptions)
    return Ending("answered", answers, preemptions=preemptions)
