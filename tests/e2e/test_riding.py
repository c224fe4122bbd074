"""Swaps that ride in prefills, by the settings that everybody gets, on real servers."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from laps_sd.serving.cpu.model import draft_model
from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import speculation_args

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(3600)]


def asked_of(prompt: int, tokens: int) -> dict[str, Any]:
    """A request that produces exactly so many tokens, and whose client says so."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    hint = {"laps_sd": {"expected_output_tokens": tokens}}
    return {"text": f"Question {prompt}: what is a river?", "sampling_params": {**sampling, "custom_params": hint}}


def answers_of_a_burst(url: str, long: list[dict[str, Any]], short: list[dict[str, Any]]) -> list[list[int]]:
    """Ask all the long ones at once, and the short ones when the first of those that run has produced a little."""
    with ThreadPoolExecutor(len(long) + len(short)) as pool, httpx.Client(timeout=1200, trust_env=False) as client:

        def answer(body: dict[str, Any]) -> list[int]:
            response = client.post(url + "/generate", json=body)
            response.raise_for_status()
            ids: list[int] = response.json()["output_ids"]
            return ids

        ids: list[int] = []
        late = None
        with client.stream("POST", url + "/generate", json={**long[0], "stream": True}) as stream:
            others = [pool.submit(answer, body) for body in long[1:]]
            for line in stream.iter_lines():
                if not line.startswith("data:") or "[DONE]" in line:
                    continue
                event = json.loads(line[5:])
                ids = event["output_ids"]
                if late is None and event["meta_info"]["completion_tokens"] >= 8:
                    late = [pool.submit(answer, body) for body in short]
        assert late is not None
        return [ids, *(each.result() for each in [*others, *late])]


def test_swaps_ride_in_prefills_by_default_and_change_no_token(
    server_factory: Callable[..., SglangServer],
    tmp_path: Path,
    preempted: Callable[[SglangServer, str], float],
    wait_idle: Callable[[SglangServer], None],
) -> None:
    """A burst of the demo's size with short late ones: of the policy's settings none is changed."""
    common = [*speculation_args("ngram"), "--max-running-requests", "4", "--enable-metrics"]
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"unpredicted": True}))
    model = draft_model(8)
    # The first ends while long ones run: its slot is filled by a prefill in which swaps ride. (Where all that run end
    # together nobody is left to give way: `test_in_a_burst_swaps_ride_when_the_first_slot_is_free`.)
    long = [asked_of(i, 96 if i else 48) for i in range(16)]
    short = [asked_of(i, 4 + i % 5) for i in range(16, 32)]
    reference = answers_of_a_burst(server_factory(common, model=model).url, long, short)
    server = server_factory([*common, "--schedule-policy", "laps-sd", "--laps-sd-config", str(config)], model=model)
    assert answers_of_a_burst(server.url, long, short) == reference
    wait_idle(server)
    assert preempted(server, "slots") > 0
