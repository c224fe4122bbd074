"""Another package's policy ranks on a real server, with a bundle of its own length predictor."""

import os
import subprocess
import sys

import httpx
import pytest

from laps_sd.data import builtin_trace, write_records
from laps_sd.serving.bench.load import LoadRequest, send_load
from laps_sd.serving.cpu.model import draft_model
from laps_sd.serving.process.speculation import speculation_args

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

LONG, SHORT = "Tell me about this list of words: " + "river " * 60, "Say yes."


def test_a_policy_of_another_package_is_served(server_factory, with_extension, tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension")
    write_records(folder / "trace.jsonl", [r for r in builtin_trace("ngram") if not r.censored][:60])
    train = [sys.executable, "-m", "laps_sd", "train", "--data", "trace.jsonl", "--out", "bundle"]
    train += ["--predictor", "by_words", "--acceptance", "fixed"]
    subprocess.run(train, cwd=folder, env={**os.environ, **with_extension}, check=True, capture_output=True)
    (folder / "config.yaml").write_text("policy: {name: smallest-prompt}")
    args = [*speculation_args("ngram"), "--max-running-requests", "1", "--schedule-policy", "laps-sd"]
    args += ["--laps-sd-bundle", str(folder / "bundle"), "--laps-sd-config", str(folder / "config.yaml")]
    server = server_factory(args, model=draft_model(8), env=with_extension)
    info = httpx.get(server.url + "/server_info", timeout=60, trust_env=False).json()
    assert [state["laps_sd"]["policy"] for state in info["internal_states"]] == ["smallest-prompt"]

    def request(name: str, text: str, at: float, tokens: int) -> LoadRequest:
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        return LoadRequest(name, {"text": text, "sampling_params": sampling}, at)

    # The first is long enough that all others wait behind it, on a fast machine too.
    asked = [request("first", SHORT, 0.0, 600), *(request(f"long{i}", LONG, 0.2, 8) for i in range(3))]
    asked += [request(f"short{i}", SHORT, 0.4, 8) for i in range(3)]
    ended = {answer.request_id: answer.finish_s for answer in send_load(server.url, asked)}
    assert None not in ended.values()
    assert max(ended[f"short{i}"] for i in range(3)) < min(ended[f"long{i}"] for i in range(3))
