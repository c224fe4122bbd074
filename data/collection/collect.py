"""Send prompts to a live SGLang server and record what happened to each."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from laps_sd.data.collection.journal import Journal
from laps_sd.data.collection.prompt import Prompt
from laps_sd.data.collection.send import RequestError, ask_chat, ask_generate, connect, record_of
from laps_sd.data.collection.server import server_info
from laps_sd.data.meta_info import from_server_info
from laps_sd.data.progress.answers import AnswerCounter
from laps_sd.data.records.writing import check_name
from laps_sd.data.tokenizer import Tokenizer
from laps_sd.errors import InputError, WorkError

if TYPE_CHECKING:
    import httpx

Endpoint = Literal["generate", "openai"]

#: Told after every request: (finished, failed, all).
OnFinished = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class CollectSummary:
    """How a run went.

    Attributes
    ----------
    recorded
        Records in the trace, those of earlier runs included.
    resumed
        Records that earlier runs had left.
    failed
        Requests of this run without a record.
    failures
        The first few reasons, in the server's words.
    seconds
        Duration of this run.
    output_tokens
        Tokens produced in this run.
    """

    out: Path
    recorded: int
    resumed: int
    failed: int
    failures: tuple[str, ...]
    seconds: float
    output_tokens: int


def collect(
    url: str,
    prompts: Sequence[Prompt],
    out: Path,
    *,
    concurrency: int = 16,
    max_new_tokens: int = 384,
    temperature: float = 0.0,
    endpoint: Endpoint = "generate",
    tokenizer: Tokenizer | None = None,
    resume: bool = False,
    timeout_s: float = 600.0,
    arrivals: Sequence[float] | None = None,
    api_key: str | None = None,
    on_progress: OnFinished | None = None,
) -> CollectSummary:
    """Send every prompt once and write a trace; a run that was cut can be taken up again.

    Parameters
    ----------
    url
        Base address of the server.
    prompts
        What to ask; the ids must differ.
    out
        The trace: ``.parquet`` or ``.jsonl``. Until the end records are in ``OUT.partial.jsonl``.
    concurrency
        Requests under way at once, at most.
    max_new_tokens
        Cap on the answer, tokens; an answer cut by it is recorded as censored.
    temperature
        0 is greedy.
    endpoint
        ``generate`` is SGLang's own, ``openai`` the chat completions.
    tokenizer
        Of the served model: counts what the answers said (``progress``). With ``generate`` its chat template is applied
        to the prompt; without one the prompt goes as it is.
    resume
        Go on where an earlier run stopped; no prompt is asked twice.
    timeout_s
        Longest wait for one answer, seconds.
    arrivals
        Seconds from the start at which each prompt is sent, ascending (``concurrency`` still holds). Without them a
        prompt is sent as soon as another is done.
    api_key
        Sent as bearer token, for a server that was started with ``--api-key``.
    on_progress
        Told after every request.

    Raises
    ------
    InputError
        No prompts, two with one id, or records of an earlier run and no ``resume``.
    WorkError
        The server cannot be reached, died or answered nothing; what was recorded is kept.
    """
    _check(prompts, concurrency, arrivals)
    check_name(out)
    journal = Journal(out, resume)
    run = _Run(journal, prompts, arrivals, on_progress)
    settings = {"max_new_tokens": max_new_tokens, "temperature": temperature}
    started = time.monotonic()
    try:
        asyncio.run(run.go(url, settings, endpoint, tokenizer, concurrency, timeout_s, api_key))
    except (KeyboardInterrupt, WorkError) as error:
        raise WorkError(f"{str(error) or 'interrupted'}{journal.stop()}") from None
    except BaseException:
        journal.stop()
        raise
    if not journal.records:
        journal.stop()
        raise WorkError(f"no request succeeded; the first failure was: {run.failures[0]}")
    return CollectSummary(
        out=out,
        recorded=journal.close(),
        resumed=run.resumed,
        failed=len(run.failures),
        failures=tuple(run.failures[:3]),
        seconds=time.monotonic() - started,
        output_tokens=run.output_tokens,
    )


def _check(prompts: Sequence[Prompt], concurrency: int, arrivals: Sequence[float] | None) -> None:
    if not prompts:
        raise InputError("there are no prompts to send")
    if concurrency < 1:
        raise InputError(f"the concurrency must be at least 1, got {concurrency}")
    if len({prompt.prompt_id for prompt in prompts}) != len(prompts):
        raise InputError("two prompts have the same id; every prompt needs its own")
    if arrivals is not None and len(arrivals) != len(prompts):
        raise InputError(f"expected one arrival time per prompt ({len(prompts)}), got {len(arrivals)}")


class _Run:
    """One run: who is asked next, what came back, and when to give up."""

    def __init__(
        self,
        journal: Journal,
        prompts: Sequence[Prompt],
        arrivals: Sequence[float] | None,
        on_progress: OnFinished | None,
    ) -> None:
        self.journal = journal
        self.resumed = len(journal.records)
        self.failures: list[str] = []
        self.output_tokens = 0
        todo = [i for i, prompt in enumerate(prompts) if prompt.prompt_id not in journal.done]
        self._prompts = prompts
        self._todo: Iterator[int] = iter(todo)
        self._total = len(todo)
        # A run that goes on keeps the pace of the trace: its clock starts where the last one stopped.
        self._clock_start = max((r.arrival_s or 0.0 for r in journal.records), default=0.0)
        first = arrivals[todo[0]] if arrivals is not None and todo else 0.0
        self._due = None if arrivals is None else [max(0.0, a - first) for a in arrivals]
        self._in_a_row = 0
        self._on_progress = on_progress

    async def go(
        self,
        url: str,
        settings: dict[str, Any],
        endpoint: Endpoint,
        tokenizer: Tokenizer | None,
        concurrency: int,
        timeout_s: float,
        api_key: str | None,
    ) -> None:
        async with connect(url, concurrency, timeout_s, api_key) as client:
            server = from_server_info(await asyncio.to_thread(server_info, url, api_key))
            answers = AnswerCounter(tokenizer)
            await asyncio.to_thread(lambda: answers.classes)  # seconds: not while requests are under way
            self._started = time.monotonic()

            async def worker() -> None:
                for index in self._todo:
                    await self._wait_for(index)
                    await self._one(
                        client, self._prompts[index], settings, endpoint, tokenizer, answers, server, concurrency
                    )

            tasks = [asyncio.create_task(worker()) for _ in range(min(concurrency, max(1, self._total)))]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for(self, index: int) -> None:
        if self._due is not None:
            await asyncio.sleep(max(0.0, self._due[index] - (time.monotonic() - self._started)))

    async def _one(
        self,
        client: "httpx.AsyncClient",
        prompt: Prompt,
        settings: dict[str, Any],
        endpoint: Endpoint,
        tokenizer: Tokenizer | None,
        answers: AnswerCounter,
        server: dict[str, Any],
        concurrency: int,
    ) -> None:
        sampling = dict(settings)
        if prompt.max_new_tokens is not None:
            sampling["max_new_tokens"] = prompt.max_new_tokens
        if prompt.temperature is not None:
            sampling["temperature"] = prompt.temperature
        arrival = self._clock_start + time.monotonic() - self._started
        try:
            if endpoint == "generate":
                measured = await ask_generate(client, prompt, sampling, tokenizer, answers)
            else:
                measured = await ask_chat(client, prompt, sampling, answers)
            record = record_of(prompt, {**server, **sampling, **measured, "arrival_s": round(arrival, 4)})
        except RequestError as error:
            await self._failed(client, f"{prompt.prompt_id}: {error}", concurrency)
        else:
            self._in_a_row = 0
            self.output_tokens += record.output_tokens
            self.journal.append(record)
        if self._on_progress is not None:
            self._on_progress(len(self.journal.records) - self.resumed, len(self.failures), self._total)

    async def _failed(self, client: "httpx.AsyncClient", reason: str, concurrency: int) -> None:
        """Count a failure; give up when the server is gone or fails one request after the other."""
        import httpx

        self.failures.append(reason)
        self._in_a_row += 1
        try:
            await client.get("/health", timeout=10.0)
        except httpx.TransportError:
            raise WorkError(f"the server at {client.base_url} stopped answering ({reason})") from None
        if self._in_a_row >= max(8, concurrency):
            raise WorkError(f"{self._in_a_row} requests failed one after the other, the last one {reason}")
