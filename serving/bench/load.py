"""Send one workload to a live server, each request at its time, and keep what a client sees of every one."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laps_sd.data import Prompt
from laps_sd.data.collection.send import RequestError, stream_generate, token_ids
from laps_sd.data.collection.server import access, address_of
from laps_sd.data.tokenizer import Tokenizer, load_tokenizer
from laps_sd.errors import InputError
from laps_sd.scheduler import RequestOutcome
from laps_sd.serving.flags import META_KEY

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
    arrival_s : float
        When to send it, seconds after the start.
    """

    request_id: str
    body: Json
    arrival_s: float = 0.0


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

    def outcome(self, *, shift_s: float = 0.0) -> RequestOutcome:
        """Return the request for `laps_sd.scheduler.summarise`, moved by ``shift_s`` seconds."""
        ours: Json = self.meta_info.get(META_KEY) or {}
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


def poisson_arrivals(n: int, rate: float | None, seed: int) -> list[float]:
    """Arrival times of ``n`` requests at ``rate`` per second, seconds from the first; without a rate all at once."""
    if rate is None:
        return [0.0] * n
    gaps = np.random.default_rng(seed).exponential(1 / rate, n)
    return [float(t) for t in np.cumsum(gaps) - gaps[0]]


def workload(
    prompts: Sequence[Prompt | str],
    model: Path | str | None,
    max_new_tokens: int,
    rate: float | None,
    seed: int,
    cpu: bool,
) -> list[LoadRequest]:
    """Return the requests of a run: greedy, inside the model's chat template where it has one, with arrival times.

    Parameters
    ----------
    model : path or None
        Whose template to apply; None: the demo model's with ``cpu``, else the prompts go as they are.
    """
    arrivals = poisson_arrivals(len(prompts), rate, seed)
    tokenizer = _tokenizer(model, cpu)
    requests = []
    for index, (prompt, arrival) in enumerate(zip(prompts, arrivals, strict=True)):
        asked = Prompt(prompt_id=f"bench-{index}", prompt=prompt) if isinstance(prompt, str) else prompt
        cap = min(asked.max_new_tokens or max_new_tokens, max_new_tokens)
        body: Json = {"sampling_params": {"temperature": 0, "max_new_tokens": cap}}
        if tokenizer is None:
            body["text"] = asked.canonical.text
        else:
            body["input_ids"] = _templated_ids(tokenizer, asked)
        requests.append(LoadRequest(asked.prompt_id, body, arrival))
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


def send_load(
    url: str,
    requests: Sequence[LoadRequest],
    *,
    timeout_s: float = 900.0,
    api_key: str | None = None,
    progress: OnAnswer | None = None,
) -> list[LoadResult]:
    """Send every request at its time and wait for all answers.

    Parameters
    ----------
    url : str
        Base address of the server.
    timeout_s : float
        Longest wait for one answer, seconds; a request that takes longer has failed.
    api_key : str, optional
        Sent as bearer token.

    Returns
    -------
    list of LoadResult
        In the order of ``requests``; a failed one says why.
    """
    return asyncio.run(_send_all(url, requests, timeout_s, api_key, progress))


async def _send_all(
    url: str, requests: Sequence[LoadRequest], timeout_s: float, api_key: str | None, progress: OnAnswer | None
) -> list[LoadResult]:
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    reached = access(address_of(url), api_key)
    async with httpx.AsyncClient(base_url=url, timeout=timeout_s, limits=limits, **reached) as client:
        started, done = time.perf_counter(), 0

        async def one(request: LoadRequest) -> LoadResult:
            nonlocal done
            await asyncio.sleep(max(0.0, request.arrival_s - (time.perf_counter() - started)))
            result = LoadResult(request.request_id, time.perf_counter() - started)
            try:
                await _ask(client, request, result, started)
            except RequestError as error:
                result.error = str(error)
            done += 1
            if progress is not None:
                progress(done, len(requests))
            return result

        return list(await asyncio.gather(*(one(request) for request in requests)))


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
