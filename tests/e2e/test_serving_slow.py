"""Every way of drafting against fcfs, token by token."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from laps_sd.data.prompts import generate_prompts
from laps_sd.serving.bench.load import LoadRequest, send_load, workload
from laps_sd.serving.cpu.model import draft_model
from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import speculation_args

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(3600)]

STANDALONE = ["--speculative-algorithm", "STANDALONE", "--speculative-num-steps", "3"]


def drafted(kind: str, tmp_path: Path, eagle_head: Path) -> list[str]:
    """SGLang's arguments of one configuration of the matrix."""
    if kind in ("plain", "plain, no overlap", "ngram"):
        overlap = ["--disable-overlap-schedule"] if kind == "plain, no overlap" else []
        return [*speculation_args("ngram" if kind == "ngram" else "none"), *overlap]
    if kind == "eagle, adaptive":
        return adaptive_eagle(tmp_path, eagle_head)
    model = ["--speculative-draft-model-path", str(draft_model(6))]
    if kind == "tree":
        return [*STANDALONE, *model, "--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "6"]
    chain = [*STANDALONE, *model, "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"]
    return [*chain, "--page-size", "16"] if kind == "chain, pages of 16" else chain


def adaptive_eagle(tmp_path: Path, head: Path) -> list[str]:
    """EAGLE whose draft length changes with what was accepted: 3 drafts at first, 1 once little is."""
    steps = tmp_path / "steps.json"
    steps.write_text('{"1": {"candidate_steps": [1, 3], "up_hysteresis": 0.0, "down_hysteresis": 0.0}}')
    chain = ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"]
    adaptive = ["--speculative-adaptive", "--speculative-adaptive-config", str(steps)]
    return ["--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", str(head), *chain, *adaptive]


def mixed_requests() -> list[LoadRequest]:
    """Forty requests, the long ones first, so that later ones preempt."""
    asked = workload(generate_prompts(40, seed=5), None, 48, cpu=True)
    for i, request in enumerate(asked):
        request.body["sampling_params"].update(max_new_tokens=48 if i < 8 else 4 + i % 9, ignore_eos=i < 8)
    return [LoadRequest(r.request_id, r.body, 0.0 if i < 8 else 2.0 + 0.05 * i) for i, r in enumerate(asked)]


def unpredicted(tmp_path: Path) -> list[str]:
    """laps-sd with the clients' hints alone: here they are right, so short requests preempt.

    As if resuming were free: for a small model on a CPU it costs a whole step, and preempting is seldom worth it.
    """
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"unpredicted": True, "policy": {"recompute_weight": 0}}))
    return ["--schedule-policy", "laps-sd", "--laps-sd-config", str(config)]


def with_hints(requests: list[LoadRequest]) -> list[LoadRequest]:
    hinted = []
    for request in requests:
        sampling = dict(request.body["sampling_params"])
        sampling["custom_params"] = {"laps_sd": {"expected_output_tokens": sampling["max_new_tokens"]}}
        hinted.append(LoadRequest(request.request_id, {**request.body, "sampling_params": sampling}, request.arrival))
    return hinted


KINDS = ["plain", "plain, no overlap", "ngram", "chain", "chain, pages of 16", "tree", "eagle, adaptive"]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_fcfs_under_preemptions_and_retractions(
    server_factory: Callable[..., SglangServer],
    tmp_path: Path,
    eagle_head: Path,
    preempted: Callable[[SglangServer, str], float],
    wait_idle: Callable[[SglangServer], None],
    kind: str,
) -> None:
    common = [*drafted(kind, tmp_path, eagle_head), "--max-running-requests", "4", "--enable-metrics"]
    model = draft_model(8)
    reference = send_load(server_factory(common, model=model).url, mixed_requests(), timeout_s=3000)
    server = server_factory([*common, *unpredicted(tmp_path)], model=model, env={"SGLANG_TEST_RETRACT": "1"})
    answers = send_load(server.url, with_hints(mixed_requests()), timeout_s=3000)
    assert [a.error for a in answers] == [None] * 40
    assert [a.output_ids for a in answers] == [a.output_ids for a in reference]
    # On a CPU SGLang overlaps the scheduling of one batch with the forward pass of another in plain decoding only.
    assert server_info(server)["disable_overlap_schedule"] == (kind != "plain")
    if kind == "eagle, adaptive":
        assert server.log is not None
        assert "Adaptive spec params updated: steps" in server.log.read_text(errors="replace")
    assert preempted(server, "slots") > 0
    assert preempted(server, "retraction") > 0
    wait_idle(server)


def server_info(server: SglangServer) -> dict[str, Any]:
    """SGLang's resolved arguments."""
    info: dict[str, Any] = httpx.get(server.url + "/server_info", timeout=60, trust_env=False).json()
    return info
