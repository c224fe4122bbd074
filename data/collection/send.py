"""One request to an SGLang server, through either endpoint, and what came back of it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from laps_sd.data.collection.prompt import Prompt
from laps_sd.data.collection.server import access, address_of
from laps_sd.data.meta_info import constraint_of, from_meta_info
from laps_sd.data.progress.answers import AnswerCounter
from laps_sd.data.records.bad_rows import to_record
from laps_sd.data.records.schema import RequestRecord
from laps_sd.data.rendered import Shown, shown_in
from laps_sd.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    import httpx


class RequestError(Exception):
    """A request that has no record; the text says why, in the server's words where it has some."""


def connect(url: str, concurrency: int, timeout_s: float, api_key: str | None) -> "httpx.AsyncClient":
    """Return a client for the server at ``url``.

    Raises
    ------
    InputError
        The address is none.
    """
    import httpx

    address = address_of(url)
    return httpx.AsyncClient(
        base_url=address,
        timeout=httpx.Timeout(timeout_s, connect=min(10.0, timeout_s)),
        limits=httpx.Limits(max_connections=concurrency + 1),
        **access(address, api_key),
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """A streamed answer of ``/generate``.

    Attributes
    ----------
    content : dict
        The last message of the stream: the whole answer.
    first_token_s, end_s : float
        When its first message and its end came, on the clock of `time.perf_counter`.
    """

    content: dict[str, Any]
    first_token_s: float
    end_s: float


async def stream_generate(client: "httpx.AsyncClient", body: Mapping[str, Any]) -> Answer:
    """Send a request to ``/generate``, streaming for the time of the first token.

    Parameters
    ----------
    client : httpx.AsyncClient
        Knows the address.
    body : mapping
        JSON of the request, without ``stream``.

    Raises
    ------
    RequestError
        There is no answer, or it is an error.
    """
    first: float | None = None
    last = b""
    async with _Answering(client.stream("POST", "/generate", json={**body, "stream": True})) as answer:
        async for line in answer.aiter_lines():
            data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
            if data and data != "[DONE]":
                first = time.perf_counter() if first is None else first
                last = data.encode()
    end = time.perf_counter()
    if first is None:
        raise RequestError("the server closed the stream without an answer")
    return Answer(_decode(last), first, end)


async def ask_generate(
    client: "httpx.AsyncClient",
    prompt: Prompt,
    sampling: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    answers: AnswerCounter,
) -> dict[str, Any]:
    """Send a prompt to ``/generate``, streaming for the time of the first token, and return the record's fields."""
    form = prompt.form
    body: dict[str, Any] = {"rid": request_id_of(prompt), "sampling_params": {**sampling, **form.of_generate()}}
    shown = Shown()
    if tokenizer is not None:
        text = rendered(tokenizer, prompt)
        shown = shown_in(text)  # as the server's own record will say it
        # Ids and not text: SGLang would put a second begin-of-sequence token before the template's own.
        body["input_ids"] = list(tokenizer.encode(text, add_special_tokens=False))
    else:
        body["text"] = prompt.prompt if prompt.messages is None else prompt.canonical.text
    asked = {"constraint": constraint_of(form.constraint), **shown._asdict()}
    started = time.perf_counter()
    answer = await stream_generate(client, body)
    times = {"ttft_s": answer.first_token_s - started, "e2e_s": answer.end_s - started}
    measured = _measured(answer.content)
    ids = answer.content.get("output_ids")
    if isinstance(ids, list) and len(ids) == measured["output_tokens"]:  # a server may stream the last ones only
        measured.update(answers.fields_of_ids(ids, len(ids)))
    return {**_known(asked), **measured, **{name: round(seconds, 4) for name, seconds in times.items()}}


async def ask_chat(
    client: "httpx.AsyncClient", prompt: Prompt, sampling: Mapping[str, Any], answers: AnswerCounter
) -> dict[str, Any]:
    """Send a prompt to ``/v1/chat/completions`` and return the record's fields.

    Not streaming: SGLang gives ``meta_info`` there in whole answers only, so the time of the first token is the
    server's (``--enable-metrics``) or unknown.
    """
    body = {
        "model": "default",
        "rid": request_id_of(prompt),
        "messages": prompt.conversation,
        "max_tokens": sampling["max_new_tokens"],
        "temperature": sampling["temperature"],
        "return_meta_info": True,
        **prompt.form.of_chat(),
    }
    started = time.monotonic()
    async with _Answering(client.stream("POST", "/v1/chat/completions", json=body)) as answer:
        data = _decode(await answer.aread())
    ended = time.monotonic()
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise RequestError("the server's answer has no choices")
    measured = _measured(choices[0])
    message = choices[0].get("message")
    text = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(message, Mapping) and isinstance(text, str) and not message.get("reasoning_content"):
        # Where the server took thoughts off the text is not all that was said.
        measured.update(answers.fields_of_text(text, measured["output_tokens"]))
    return {**_known(prompt.form.chat_fields()), **measured, "e2e_s": round(ended - started, 4)}


def request_id_of(prompt: Prompt) -> str:
    """Return a new name for a request, by which what the server logs of it is found: `prompt_id_of` reads it."""
    return f"{prompt.prompt_id}#{uuid4().hex[:8]}"


def prompt_id_of(request_id: str) -> str:
    """Return the id of the prompt that a request asks."""
    return request_id.rpartition("#")[0]


def token_ids(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    """Return the ids of the prompt inside the model's chat template."""
    return list(tokenizer.encode(rendered(tokenizer, prompt), add_special_tokens=False))


def rendered(tokenizer: Tokenizer, prompt: Prompt) -> str:
    """Return the prompt inside the model's chat template, with the tools that the answer may call."""
    form = prompt.form
    more = dict(form.template)
    if form.tools and form.tool_choice != "none":
        more["tools"] = [dict(tool) for tool in form.tools]
    text = tokenizer.apply_chat_template(prompt.conversation, tokenize=False, add_generation_prompt=True, **more)
    return str(text)


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class _Answering:
    """Opens a response and turns every way it can fail into a RequestError with the reason."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aenter__(self) -> "httpx.Response":
        import httpx

        try:
            answer: httpx.Response = await self._stream.__aenter__()
            if answer.status_code != 200:
                text = (await answer.aread()).decode("utf-8", "replace")
                await self._stream.__aexit__(None, None, None)
                raise RequestError(f"HTTP {answer.status_code}: {' '.join(text.split())[:200]}")
        except httpx.TransportError as error:
            raise _transport(error) from None
        return answer

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        import httpx

        await self._stream.__aexit__(kind, error, trace)
        if isinstance(error, httpx.TransportError):
            raise _transport(error) from None


def _transport(error: Exception) -> RequestError:
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return RequestError("no answer in time")
    return RequestError(f"the connection broke ({str(error) or type(error).__name__})")


def _decode(text: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        raise RequestError("the server's answer is not JSON") from None
    if not isinstance(data, dict):
        raise RequestError("the server's answer is not a JSON object")
    if "error" in data:
        raise RequestError(f"the server says: {str(data['error'])[:200]}")
    return data


def _measured(answer: Mapping[str, Any]) -> dict[str, Any]:
    meta = answer.get("meta_info")
    if not isinstance(meta, Mapping):
        raise RequestError("the server's answer has no meta_info")
    try:
        return from_meta_info(meta)
    except ValueError as error:
        raise RequestError(str(error)) from None


def record_of(prompt: Prompt, fields: dict[str, Any]) -> RequestRecord:
    """Return the record of a prompt and what was measured, or raise RequestError when the two do not fit."""
    said = prompt.canonical
    known = {"category": prompt.category, "group": prompt.group, "source": prompt.source}
    row = {"request_id": prompt.prompt_id, "prompt": said.text, "turns": said.turns, **known, **fields}
    try:
        return to_record(row)
    except ValueError as error:
        raise RequestError(f"the server's answer does not make a record: {error}") from None
