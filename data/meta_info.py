"""What SGLang says about a finished request (``meta_info``), in the words of a record."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec


def from_meta_info(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record fields that SGLang's ``meta_info`` of a finished request holds.

    A field that the server did not report is left out: ``queue_time`` and ``first_token_latency`` need
    ``--enable-metrics``, the counts of drafts a speculative algorithm. A request that ended with its first token has
    no verify step and therefore no histogram.

    Raises
    ------
    ValueError
        The request has not finished, or ``meta_info`` is not SGLang's.
    """
    reason = meta.get("finish_reason")
    if isinstance(reason, Mapping):
        reason = reason.get("type")
    if reason is None or ("prompt_tokens" not in meta and reason != "abort"):
        raise ValueError("meta_info: expected finish_reason and prompt_tokens of a finished SGLang request")
    fields: dict[str, Any] = {
        "finish_reason": reason,
        "prompt_tokens": meta.get("prompt_tokens", 0),
        "output_tokens": meta.get("completion_tokens", 0),
        "verify_steps": meta.get("spec_verify_ct"),
        "correct_drafts_histogram": meta.get("spec_correct_drafts_histogram"),
        "queue_s": meta.get("queue_time"),
        "ttft_s": meta.get("first_token_latency"),
        "e2e_s": meta.get("e2e_latency"),
    }
    return {name: value for name, value in fields.items() if value is not None}


#: Sampling parameters that hold an answer to a form, and which of them are JSON.
CONSTRAINTS = ("regex", "json_schema", "ebnf", "structural_tag")
JSON_CONSTRAINTS = ("json_schema", "structural_tag")
LONGEST_CONSTRAINT = 2000
#: A longer schema is kept as it was written: nobody waits for it to be read.
_LONGEST_READ = 100_000


def constraint_of(sampling: Mapping[str, Any]) -> str | None:
    """Return what an answer is held to, ``kind:text``, as SGLang's sampling parameters say it; None where free.

    JSON is written without blanks, so that one schema is one text whoever wrote it down.

    Examples
    --------
    >>> constraint_of({"temperature": 0, "regex": "(yes|no)"})
    'regex:(yes|no)'
    >>> constraint_of({"json_schema": '{"type": "object"}'})
    'json_schema:{"type":"object"}'
    """
    for kind in CONSTRAINTS:
        text = sampling.get(kind)
        if text:
            return f"{kind}:{_plain(kind, text)}"[:LONGEST_CONSTRAINT]
    return None


def _plain(kind: str, text: Any) -> str:
    if isinstance(text, str) and (kind not in JSON_CONSTRAINTS or len(text) > _LONGEST_READ):
        return text
    try:
        return msgspec.json.encode(msgspec.json.decode(text) if isinstance(text, str) else text).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return str(text)  # SGLang refuses such a request


def from_server_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return model, draft and the most drafts a step can accept, as ``/server_info`` tells them.

    Only the last part of a path is kept: where a model lies on somebody's disk is nobody else's business.
    """
    algorithm = info.get("speculative_algorithm")
    fields: dict[str, Any] = {"model": _last_part(info.get("served_model_name") or info.get("model_path"))}
    if algorithm:
        draft_model = _last_part(info.get("speculative_draft_model_path"))
        fields["draft"] = f"{algorithm}:{draft_model}" if draft_model else str(algorithm)
        fields["max_correct_drafts"] = most_correct_drafts(
            str(algorithm),
            *(_whole(info.get(f"speculative_{name}")) for name in ("num_draft_tokens", "num_steps", "eagle_topk")),
        )
    return {name: value for name, value in fields.items() if value is not None}


def most_correct_drafts(
    algorithm: str | None, draft_tokens: int | None, steps: int | None, topk: int | None
) -> int | None:
    """Return the most drafts that one verify step can accept: the longest path through what is drafted.

    A chain holds ``draft_tokens`` tokens of which the first, the root, is no draft. A tree that a draft model grows
    (``topk`` above 1) is at most ``steps`` levels deep, and a path cannot be longer than the tree has tokens: 4 tokens
    and 5 steps accept at most 3. NGRAM sets ``topk`` to the breadth of its trie and ``steps`` to a share of the tokens,
    which bounds no path there.

    Parameters
    ----------
    algorithm : str or None
        SGLang's name of the way of drafting; None: no speculation.
    draft_tokens : int or None
        Tokens that a step verifies, the root included.
    steps, topk : int or None
        ``--speculative-num-steps`` and ``--speculative-eagle-topk``, as SGLang resolved them.

    Returns
    -------
    int or None
        None without speculation, and where too little is known.
    """
    if not algorithm:
        return None
    bounds = [] if draft_tokens is None else [draft_tokens - 1]
    if algorithm != "NGRAM" and (topk or 1) > 1 and steps:
        bounds.append(steps)
    return min(bounds, default=None)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _last_part(name: Any) -> str | None:
    return PurePosixPath(str(name)).name or None if name else None
