"""The live comparison: the same requests at the same times, on real servers, policies in turn A B C A B C."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from laps_sd.data import Prompt
from laps_sd.errors import InputError, WorkError
from laps_sd.scheduler import policy_class
from laps_sd.serving.bench.figures import Turn, compare_tokens, summary_of, write_requests
from laps_sd.serving.bench.load import Json, LoadRequest, send_load, workload
from laps_sd.serving.bench.rank_time import quantiles_us, rank_counts
from laps_sd.serving.config import servable_policies
from laps_sd.serving.cpu import launch
from laps_sd.serving.cpu.model import demo_model
from laps_sd.serving.flags import POLICY
from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import Speculation, speculation_args

#: Policies that SGLang knows by itself: their names are its own, also where one of ours is called the same.
SGLANG_POLICIES = ("fcfs", "hrrn", "lpm", "dfs-weight", "lof", "random", "shortest-prefill-first")

#: Told what happens: (sentence, share of the whole that is done, 0 to 1).
OnStage = Callable[[str, float], None]


def run_bench(
    *,
    policies: Sequence[str],
    prompts: Sequence[Prompt | str],
    bundle: Path | str | None,
    out_dir: Path,
    max_new_tokens: int,
    model: Path | str | None = None,
    draft: Speculation = "ngram",
    draft_model: Path | None = None,
    max_running: int = 4,
    rate: float | None = None,
    cpu: bool = True,
    seed: int = 0,
    rounds: int = 1,
    server_args: Sequence[str] = (),
    config: Mapping[str, object] | None = None,
    progress: OnStage | None = None,
) -> Json:
    """Compare policies on servers that are started for it, one at a time, each fresh.

    Parameters
    ----------
    policies : sequence of str
        SGLang's own names and those that ``policy.name`` may have, in the order in which they take turns.
    prompts : sequence of Prompt or str
        What to ask; the chat template is applied where the model has one. Decoding is greedy.
    bundle : path, MLflow URI or None
        Predictors for laps-sd; None: it runs unpredicted.
    out_dir : Path
        Receives one line per request (``requests.jsonl``) and the servers' logs.
    draft, draft_model : str, Path or None
        How tokens are drafted, and the model that does it for ``standalone``; None: the demo model's first 24 layers.
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
        The JSON of ``laps-sd bench``, and ``identical_tokens``: whether every request got the same token
        ids under every policy in every round (None when fewer than two runs answered it).

    Raises
    ------
    InputError
        An unknown policy, no prompts, a bundle that cannot be read.
    WorkError
        A server did not start, died, or answered nothing.
    """
    check_usage(policies, prompts, max_running=max_running, rounds=rounds, rate=rate)
    check_servers(model, draft, draft_model, cpu=cpu)
    requests = workload(prompts, demo_model() if model is None else model, max_new_tokens, rate, seed, cpu)
    out_dir.mkdir(parents=True, exist_ok=True)
    plan = [(number, policy) for number in range(rounds) for policy in policies]
    turns = []
    for index, (number, policy) in enumerate(plan):
        label = f"{policy}, round {number + 1} of {rounds}"
        args = [
            *speculation_args(draft, draft=draft_model),
            *("--max-running-requests", str(max_running), "--enable-metrics"),
            *policy_args(policy, bundle, config, out_dir),
            *server_args,
        ]
        log = out_dir / f"server-{number}-{file_name(policy)}.log"
        tell = teller(progress, label, index, len(plan))
        tell("starting the server", 0.0)
        with SglangServer(args, cpu=cpu, model=model, log=log) as server:
            server.wait_ready()
            turns.append(take_turn(server.url, policy, number, requests, tell, plugin=ranks_by_plugin(policy)))
            server.raise_if_dead()
    write_requests(out_dir / "requests.jsonl", turns)
    return {
        "workload": {
            "n": len(requests), "slots": max_running, "load": None, "seed": seed, "rate": rate, "draft": draft,
            "model": None if model is None else str(model), "max_new_tokens": max_new_tokens, "rounds": rounds,
            "cpu": cpu,
        },
        "policies": {name: summary_of([t for t in turns if t.policy == name]) for name in dict.fromkeys(policies)},
        **compare_tokens(turns),
    }  # fmt: skip


def policy_args(
    policy: str, bundle: Path | str | None, config: Mapping[str, object] | None, out_dir: Path
) -> list[str]:
    """Return launch arguments that select a policy: one of SGLang's own, or laps-sd with ours in its configuration."""
    if not ranks_by_plugin(policy):
        return ["--schedule-policy", policy]
    args = ["--schedule-policy", POLICY]
    content = dict(config or {})
    if policy != POLICY:
        given = content.get("policy")
        content["policy"] = {**(given if isinstance(given, Mapping) else {}), "name": policy}
    if bundle is None and needs_bundle(policy):
        content["unpredicted"] = True
    elif bundle is not None:
        args += ["--laps-sd-bundle", str(bundle)]
    if content:
        path = out_dir / f"{file_name(policy)}-config.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        args += ["--laps-sd-config", str(path)]
    return args


def ranks_by_plugin(policy: str) -> bool:
    """Whether a policy is ours, and not one of SGLang's own."""
    return policy not in SGLANG_POLICIES


def needs_bundle(policy: str) -> bool:
    """Whether a policy is ours and uses predictions."""
    return ranks_by_plugin(policy) and policy_class(policy).uses_predictions


def file_name(policy: str) -> str:
    """Return the policy's name as part of a file's."""
    return policy.replace(":", "-")


def check_usage(
    policies: Sequence[str],
    prompts: Sequence[Prompt | str],
    *,
    max_running: int = 1,
    rounds: int = 1,
    rate: float | None = None,
) -> None:
    """Raise :class:`InputError` for an unknown policy, no prompts or a number out of bounds."""
    known = dict.fromkeys([*SGLANG_POLICIES, *servable_policies()])
    unknown = [policy for policy in policies if policy not in known]
    if unknown or not policies:
        raise InputError(f"unknown policy {' '.join(unknown) or '(none)'}; a server knows {', '.join(known)}")
    if len(set(policies)) < len(policies):
        raise InputError("a policy is named twice; rounds say how often each has its turn")
    if not prompts:
        raise InputError("there are no prompts to send")
    if max_running < 1 or rounds < 1 or (rate is not None and rate <= 0):
        raise InputError("slots and rounds must be at least 1 and the rate positive")


def check_servers(model: Path | str | None, draft: Speculation, draft_model: Path | None, *, cpu: bool) -> None:
    """Refuse, before anything long is done, servers that could not start.

    Raises
    ------
    InputError
        The folder of a model is missing or holds none, or a draft model is named and not used.
    WorkError
        This environment cannot serve.
    """
    if draft_model is not None and draft != "standalone":
        raise InputError("a draft model is used with standalone drafts only; drop it or draft with standalone")
    if isinstance(model, Path) or (cpu and model is not None):
        launch.require_model(Path(model))
    if draft_model is not None:
        launch.require_model(draft_model)
    if cpu:
        launch.check(speculation_args(draft) if draft == "ngram" else ())


def take_turn(
    url: str,
    policy: str,
    number: int,
    requests: Sequence[LoadRequest],
    tell: Callable[[str, float], None],
    *,
    plugin: bool,
    api_key: str | None = None,
) -> Turn:
    """Send the requests and return what came back; WorkError where nothing did.

    With ``plugin`` the server's rankings are timed from its metrics.
    """
    tell(f"0 of {len(requests)} requests answered", 0.2)
    before = rank_counts(url, api_key) if plugin else {}
    results = send_load(
        url,
        requests,
        api_key=api_key,
        progress=lambda done, n: tell(f"{done} of {n} requests answered", 0.2 + 0.8 * done / n),
    )
    if all(result.finish_s is None for result in results):
        raise WorkError(f"no request succeeded under {policy}; the first failure was: {results[0].error}")
    rank_us = quantiles_us(rank_counts(url, api_key), since=before) if plugin else None
    return Turn(policy, number, results, rank_us)


def teller(progress: OnStage | None, label: str, index: int, count: int) -> Callable[[str, float], None]:
    """Return what a turn tells of its own share to, the ``index``-th of ``count``."""

    def tell(what: str, share: float) -> None:
        if progress is not None:
            progress(f"{label}: {what}", (index + share) / count)

    return tell
