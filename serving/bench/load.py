"""Send one workload to a live server, each request at its time, and keep what a client sees of every one."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laps_sd.data import Prompt
from laps_sd.data.collection.send import RequestError, stream_generate, token_ids
from laps_sd.data.collection.server import access, address_of
from laps_sd.data.tokenizer import Tokenizer, load_tokenizer
from laps_sd.errors import InputError
from laps_sd.scheduler import RequestOutcome
from laps_sd.serving.bench.clock import Clock, RoundClock, WallClock
from laps_sd.serving.flags import META_KEY
from laps_sd.serving.rounds import RequestRoundsFields

if TYPE_CHECKING:
    import httpx

#: Decoded JSON: whoever reads a key knows what stands under it.
Json = dict[str, Any]  # Any: JSON has no narrower type

#: Told after every request: (finished or failed, all).
OnAnswer = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One request of a workload.

    Attributes
    ----------
    request_id : str
    body : dict
        JSON body for ``/generate``, without ``stream``.
    arrival : float
        When to send it, on the clock of the run: seconds (or rounds of the server) after the start.
    """

    request_id: str
    body: Json
    arrival: float = 0.0


@dataclass(slots=True)
class LoadResult:
    """What came back of one request; times are seconds after the start of the run, None where it failed."""

    request_id: str
    arrival_s: float
    first_token_s: float | None = None
    finish_s: float | None = None
    output_ids: list[int] = field(default_factory=list)
    meta_info: Json = field(default_factory=dict)
    error: str | None = None
    max_new_tokens: int | None = None

    @property
    def latency_s(self) -> float | None:
        """Seconds from its sending to its end; None where it failed."""
        return None if self.finish_s is None else self.finish_s - self.arrival_s

    @property
    def latency_rounds(self) -> int | None:
        """The same in rounds of the server's scheduler; None where it failed or nobody counted."""
        counted = self.rounds
        return None if self.finish_s is None or counted is None else counted["end"] - counted["arrival"]

    @property
    def rounds(self) -> RequestRoundsFields | None:
        """What the server counted of it in rounds; None where it does not count them."""
        ours = self.ours.get("rounds")
        return ours if isinstance(ours, dict) else None  # type: ignore[return-value]

    @property
    def ours(self) -> Json:
        """What our hooks say of it: an object, or a list of one where only rounds are counted."""
        said = self.meta_info.get(META_KEY) or {}
        if isinstance(said, list):
            said = said[-1] if said else {}
        return said if isinstance(said, dict) else {}

    def outcome(self, *, shift_s: float = 0.0) -> RequestOutcome:
        """Return the request for `laps_sd.scheduler.summarise`, moved by ``shift_s`` seconds."""
        ours = self.ours
        retractions: int = self.meta_info.get("num_retractions", 0)
        return RequestOutcome(
            request_id=self.request_id,
            arrival_s=self.arrival_s + shift_s,
            first_token_s=None if self.first_token_s is None else self.first_token_s + shift_s,
            finish_s=None if self.finish_s is None else self.finish_s + shift_s,
            # A server that streams increments sends only the last ids at the end.
            output_tokens=self.meta_info.get("completion_tokens", len(self.output_ids)),
            preemptions=ours.get("preemptions", retractions),
            recomputed_tokens=ours.get("recomputed_tokens", 0),
        )


def workload(
    prompts: Sequence[Prompt | str],
    model: Path | str | None,
    max_new_tokens: int,
    cpu: bool,
) -> list[LoadRequest]:
    """Return the requests of a run: greedy, inside the model's chat template where it has one, all at once.

    Parameters
    ----------
    model : path or None
        Whose template to apply; None: the demo model's with ``cpu``, else the prompts go as they are.
    """
    tokenizer = _tokenizer(model, cpu)
    requests = []
    for index, prompt in enumerate(prompts):
        asked = Prompt(prompt_id=f"bench-{index}", prompt=prompt) if isinstance(prompt, str) else prompt
        cap = min(asked.max_new_tokens or max_new_tokens, max_new_tokens)
        body: Json = {"sampling_params": {"temperature": 0, "max_new_tokens": cap}}
        if tokenizer is None:
            body["text"] = asked.canonical.text
        else:
            body["input_ids"] = _templated_ids(tokenizer, asked)
        requests.append(LoadRequest(asked.prompt_id, body))
    return requests


def _templated_ids(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    from jinja2 import TemplateError

    try:
        return token_ids(tokenizer, prompt)
    except TemplateError as error:
        raise InputError(f"the model's chat template refuses prompt {prompt.prompt_id}: {error}") from None


def _tokenizer(model: Path | str | None, cpu: bool) -> Tokenizer | None:
    """Return the model's tokenizer when it has a chat template, else None: prompts then go as they are."""
    if model is None and cpu:
        from laps_sd.serving.cpu.model import demo_model

        model = demo_model()
    if model is None:
        return None
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer: Tokenizer = load_tokenizer(str(model))
    return tokenizer if getattr(tokenizer, "chat_template", None) else None


def at_times(requests: Sequence[LoadRequest], times: Sequence[float]) -> list[LoadRequest]:
    """Give the requests, in their order, the arrival times."""
    return [replace(request, arrival=time) for request, time in zip(requests, times, strict=True)]


def send_load(
    url: str,
    requests: Sequence[LoadRequest],
    *,
    clients: int | None = None,
    rounds_log: Path | None = None,
    timeout_s: float = 900.0,
    api_key: str | None = None,
    progress: OnAnswer | None = None,
) -> list[LoadResult]:
    """Send every request at its time and wait for all answers.

    Parameters
    ----------
    url : str
        Base address of the server.
    clients : int, optional
        A closed loop: so many send one request after the other, whatever the arrival times.
    rounds_log : Path, optional
        Arrival times are rounds of the server, which writes this log of them.
    timeout_s : float
        Longest wait for one answer, seconds; a request that takes longer has failed.
    api_key : str, optional
        Sent as bearer token.

    Returns
    -------
    list of LoadResult
        In the order of ``requests``; a failed one says why.
    """
    return asyncio.run(_Sender(progress, len(requests)).run(url, requests, clients, rounds_log, timeout_s, api_key))


class _Sender:
    """One run: what is on its way, and how far it is."""

    def __init__(self, progress: OnAnswer | None, count: int) -> None:
        self._progress, self._count = progress, count
        self._done = self._sent = 0
        self._started = time.perf_counter()

    async def run(
        self,
        url: str,
        requests: Sequence[LoadRequest],
        clients: int | None,
        rounds_log: Path | None,
        timeout_s: float,
        api_key: str | None,
    ) -> list[LoadResult]:
        import httpx

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        reached = access(address_of(url), api_key)
        async with httpx.AsyncClient(base_url=url, timeout=timeout_s, limits=limits, **reached) as client:
            self._started = time.perf_counter()
            if clients is not None:
                return await self._closed(client, requests, clients)
            if rounds_log is None:
                return await self._open(client, requests, WallClock())
            with closing(RoundClock(rounds_log)) as clock:
                return await self._open(client, requests, clock)

    async def _open(
        self, client: "httpx.AsyncClient", requests: Sequence[LoadRequest], clock: Clock
    ) -> list[LoadResult]:
        order = sorted(range(len(requests)), key=lambda i: requests[i].arrival)
        tasks: dict[int, asyncio.Task[LoadResult]] = {}
        for place in order:
            await clock.until(requests[place].arrival, lambda: self._sent - self._done)
            self._sent += 1
            tasks[place] = asyncio.create_task(self._one(client, requests[place]))
        return [await tasks[place] for place in range(len(requests))]

    async def _closed(
        self, client: "httpx.AsyncClient", requests: Sequence[LoadRequest], clients: int
    ) -> list[LoadResult]:
        left = iter(enumerate(requests))
        results: dict[int, LoadResult] = {}

        async def work() -> None:
            for place, request in left:
                results[place] = await self._one(client, request)

        await asyncio.gather(*(work() for _ in range(clients)))
        return [results[place] for place in range(len(requests))]

    async def _one(self, client: "httpx.AsyncClient", request: LoadRequest) -> LoadResult:
        result = LoadResult(request.request_id, time.perf_counter() - self._started)
        result.max_new_tokens = request.body["sampling_params"].get("max_new_tokens")
        try:
            await _ask(client, request, result, self._started)
        except RequestError as error:
            result.error = str(error)
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._count)
        return result


async def _ask(client: "httpx.AsyncClient", request: LoadRequest, result: LoadResult, started: float) -> None:
    """Send one request and note in ``result`` what comes back; RequestError where that is no answer."""
    answer = await stream_generate(client, request.body)
    meta = answer.content.get("meta_info")
    if not isinstance(meta, dict):
        raise RequestError("the server's answer has no meta_info")
    result.first_token_s = answer.first_token_s - started
    result.output_ids, result.meta_info = list(answer.content.get("output_ids") or []), meta
    reason = meta.get("finish_reason") or {}
    if reason.get("type") == "abort":
        raise RequestError(f"aborted: {reason.get('message', '')}")
    result.finish_s = answer.end_s - started
