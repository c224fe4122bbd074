"""The live comparison: the same requests at the same times, on real servers, policies in turn A B C A B C."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from laps_sd.data.prompt import Prompt
from laps_sd.errors import InputError, WorkError
from laps_sd.scheduler import summarise
from laps_sd.serving.load import LoadRequest, LoadResult, poisson_arrivals, send_load
from laps_sd.serving.names import META_KEY, POLICY
from laps_sd.serving.process import SglangServer, Speculation, speculation_args
from laps_sd.serving.rank_time import rank_quantiles_us

#: Policies that a server knows by itself, and ours.
SERVER_POLICIES = ("fcfs", "hrrn", "lpm", "dfs-weight", "lof", "random", "shortest-prefill-first", POLICY)

#: Told what happens: (sentence, share of the whole that is done, 0 to 1).
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy's run in one round: what came back, and microseconds per ranking (p50, p99)."""

    policy: str
    round: int
    results: list[LoadResult]
    rank_us: tuple[float, float] | None


def run_bench(
    *,
    policies: Sequence[str],
    prompts: Sequence[Prompt | str],
    bundle: Path | str | None,
    out_dir: Path,
    max_new_tokens: int,
    model: Path | str | None = None,
    draft: Speculation = "ngram",
    max_running: int = 4,
    rate: float | None = None,
    cpu: bool = True,
    seed: int = 0,
    rounds: int = 1,
    server_args: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compare policies on servers that are started for it, one at a time, each fresh.

    Parameters
    ----------
    policies : sequence of str
        ``laps-sd`` and SGLang's own names, in the order in which they take turns.
    prompts : sequence of Prompt or str
        What to ask; the chat template is applied where the model has one. Decoding is greedy.
    bundle : path, MLflow URI or None
        Predictors for laps-sd; None: it runs unpredicted.
    out_dir : Path
        Receives one line per request (``requests.jsonl``) and the servers' logs.
    max_running : int
        Slots: requests that decode together.
    rate : float or None
        Poisson arrivals per second; None: all at once.
    rounds : int
        How often every policy has its turn.
    server_args : sequence of str
        Further arguments for every server.
    config : mapping, optional
        Content of ``--laps-sd-config``.

    Returns
    -------
    dict
        The shape of contracts.md for ``bench``, and ``identical_tokens``: whether every request got the same token
        ids under every policy in every round (None when fewer than two runs answered it).

    Raises
    ------
    InputError
        An unknown policy, no prompts, a bundle that cannot be read.
    WorkError
        A server did not start, died, or answered nothing.
    """
    _check(policies, prompts, max_running, rounds, rate)
    requests = _workload(prompts, model, max_new_tokens, rate, seed, cpu)
    out_dir.mkdir(parents=True, exist_ok=True)
    plan = [(number, policy) for number in range(rounds) for policy in policies]
    turns = []
    for index, (number, policy) in enumerate(plan):
        label = f"{policy}, round {number + 1} of {rounds}"
        args = [
            *speculation_args(draft),
            *("--max-running-requests", str(max_running), "--enable-metrics"),
            *policy_args(policy, bundle, config, out_dir),
            *server_args,
        ]
        log = out_dir / f"server-{number}-{policy}.log"
        tell = _teller(progress, label, index, len(plan))
        tell("starting the server", 0.0)
        with SglangServer(args, cpu=cpu, model=model, log=log) as server:
            server.wait_ready()
            turns.append(_take_turn(server, policy, number, requests, tell))
    _write_requests(out_dir / "requests.jsonl", turns)
    return {
        "workload": {
            "n": len(requests), "slots": max_running, "load": None, "seed": seed, "rate": rate, "draft": draft,
            "model": None if model is None else str(model), "max_new_tokens": max_new_tokens, "rounds": rounds,
            "cpu": cpu,
        },
        "policies": {name: summary_of([t for t in turns if t.policy == name]) for name in dict.fromkeys(policies)},
        **compare_tokens(turns),
    }  # fmt: skip


def policy_args(policy: str, bundle: Path | str | None, config: Mapping[str, Any] | None, out_dir: Path) -> list[str]:
    """Launch arguments that select a policy."""
    args = ["--schedule-policy", policy]
    if policy != POLICY:
        return args
    content = dict(config or {})
    if bundle is None:
        content["unpredicted"] = True
    else:
        args += ["--laps-sd-bundle", str(bundle)]
    if content:
        path = out_dir / "laps-sd-config.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        args += ["--laps-sd-config", str(path)]
    return args


def summary_of(turns: Sequence[Turn]) -> dict[str, Any]:
    """Figures of one policy over all its rounds, one after the other on one clock."""
    outcomes, shift, means = [], 0.0, []
    for turn in turns:
        moved = [result.outcome(shift_s=shift) for result in turn.results]
        finishes = [o.finish_s for o in moved if o.finish_s is not None]
        shift = max(finishes, default=shift)
        spread = summarise(moved)["latency_s"]
        means.append(None if spread is None else spread["mean"])
        outcomes += moved
    summary: dict[str, Any] = dict(summarise(outcomes))
    timed = [turn.rank_us for turn in turns if turn.rank_us is not None]
    if timed:
        summary["rank_us_p50"], summary["rank_us_p99"] = (sum(x) / len(timed) for x in zip(*timed, strict=True))
    summary["latency_s_mean_by_round"] = means
    summary["accept_length_mean"] = _mean_accept_length(turns)
    return summary


def compare_tokens(turns: Sequence[Turn]) -> dict[str, Any]:
    """Whether every request got the same tokens in every run that answered it."""
    answers: dict[str, list[tuple[str, int, list[int]]]] = {}
    for turn in turns:
        for result in turn.results:
            if result.finish_s is not None:
                answers.setdefault(result.request_id, []).append((turn.policy, turn.round, result.output_ids))
    comparable = {name: runs for name, runs in answers.items() if len(runs) > 1}
    different = sorted(name for name, runs in comparable.items() if any(run[2] != runs[0][2] for run in runs))
    return {"identical_tokens": not different if comparable else None, "different_requests": different}


def _check(
    policies: Sequence[str], prompts: Sequence[Prompt | str], max_running: int, rounds: int, rate: float | None
) -> None:
    unknown = [policy for policy in policies if policy not in SERVER_POLICIES]
    if unknown or not policies:
        raise InputError(f"unknown policy {' '.join(unknown) or '(none)'}; a server knows {', '.join(SERVER_POLICIES)}")
    if not prompts:
        raise InputError("there are no prompts to send")
    if max_running < 1 or rounds < 1 or (rate is not None and rate <= 0):
        raise InputError("slots and rounds must be at least 1 and the rate positive")


def _workload(
    prompts: Sequence[Prompt | str],
    model: Path | str | None,
    max_new_tokens: int,
    rate: float | None,
    seed: int,
    cpu: bool,
) -> list[LoadRequest]:
    arrivals = poisson_arrivals(len(prompts), rate, seed)
    tokenizer = _tokenizer(model, cpu)
    requests = []
    for index, (prompt, arrival) in enumerate(zip(prompts, arrivals, strict=True)):
        asked = Prompt(prompt_id=f"bench-{index}", prompt=prompt) if isinstance(prompt, str) else prompt
        cap = min(asked.max_new_tokens or max_new_tokens, max_new_tokens)
        body: dict[str, Any] = {"sampling_params": {"temperature": 0, "max_new_tokens": cap}}
        if tokenizer is None:
            body["text"] = asked.canonical.text
        else:
            text = tokenizer.apply_chat_template(asked.conversation, tokenize=False, add_generation_prompt=True)
            body["input_ids"] = list(tokenizer.encode(text, add_special_tokens=False))
        requests.append(LoadRequest(asked.prompt_id, body, arrival))
    return requests


def _tokenizer(model: Path | str | None, cpu: bool) -> Any:
    """The model's tokenizer when it has a chat template, else None: prompts then go as they are."""
    if model is None and cpu:
        from laps_sd.serving.cpu.model import demo_model

        model = demo_model()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model))
    return tokenizer if tokenizer.chat_template else None


def _take_turn(
    server: SglangServer, policy: str, number: int, requests: Sequence[LoadRequest], tell: Callable[[str, float], None]
) -> Turn:
    tell(f"0 of {len(requests)} requests answered", 0.2)
    results = send_load(
        server.url,
        requests,
        progress=lambda done, n: tell(f"{done} of {n} requests answered", 0.2 + 0.8 * done / n),
    )
    server.raise_if_dead()
    if all(result.finish_s is None for result in results):
        raise WorkError(f"no request succeeded under {policy}; the first failure was: {results[0].error}")
    rank_us = rank_quantiles_us(server.url) if policy == POLICY else None
    return Turn(policy, number, results, rank_us)


def _teller(progress: Progress | None, label: str, index: int, count: int) -> Callable[[str, float], None]:
    def tell(what: str, share: float) -> None:
        if progress is not None:
            progress(f"{label}: {what}", (index + share) / count)

    return tell


def _mean_accept_length(turns: Sequence[Turn]) -> float | None:
    tokens = steps = 0
    for turn in turns:
        for result in turn.results:
            histogram = result.meta_info.get("spec_correct_drafts_histogram") or []
            steps += sum(histogram)
            tokens += sum((k + 1) * count for k, count in enumerate(histogram))
    return tokens / steps if steps else None


def _write_requests(path: Path, turns: Sequence[Turn]) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for turn in turns:
            for r in turn.results:
                meta = r.meta_info
                line = {
                    "policy": turn.policy, "round": turn.round, "request_id": r.request_id, "arrival_s": r.arrival_s,
                    "first_token_s": r.first_token_s, "finish_s": r.finish_s, "error": r.error,
                    "output_ids": r.output_ids, "finish_reason": meta.get("finish_reason"),
                    "num_retractions": meta.get("num_retractions"), "cached_tokens": meta.get("cached_tokens"),
                    "spec_accept_length": meta.get("spec_accept_length"), "laps_sd": meta.get(META_KEY),
                }  # fmt: skip
                file.write(json.dumps(line) + "\n")
    temporary.replace(path)
