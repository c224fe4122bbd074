"""The whole pipeline on embedded defaults: record, train, evaluate, serve under two policies, compare."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from laps_sd.data import RequestRecord, builtin_trace, read_records, split, write_records
from laps_sd.data.collection.collect import collect
from laps_sd.data.collection.prompt import Prompt
from laps_sd.data.prompts import generate_prompts
from laps_sd.errors import InputError

#: What a demo writes into its folder; an earlier demo's files of these names are replaced.
OUTPUTS = (
    "trace.parquet",
    "train.parquet",
    "held-out.parquet",
    "bundle",
    "mlflow.db",
    "mlartifacts",
    "bench",
    "servers",
)
POLICIES = ("fcfs", "laps-sd")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The demo's settings; the defaults fit ten minutes on two cores.

    Attributes
    ----------
    out
        Folder of everything that the demo writes.
    model
        Model folder; None: SmolLM2-135M-Instruct.
    draft
        How tokens are drafted.
    recorded, burst
        Prompts sent while recording, and to each policy at once.
    record_cap, burst_cap
        Longest answer, tokens, while recording and in the comparison.
    max_running
        Requests that the server runs at a time in the comparison: few, so that a queue forms.
    """

    out: Path
    model: Path | None = None
    draft: Literal["ngram", "standalone"] = "ngram"
    recorded: int = 32
    record_cap: int = 192
    burst: int = 24
    burst_cap: int = 144
    max_running: int = 4
    held_out_share: float = 0.25
    seed: int = 0


class Steps(Protocol):
    """Who shows a person what is being done."""

    def step(self, title: str) -> AbstractContextManager[Callable[[float, str], None]]:
        """Open a step; the callable takes the share done (0–1) and a word about it."""


def run_demo(options: DemoOptions, steps: Steps) -> dict[str, Any]:
    """Run the pipeline and return the figures of ``bench``, the evaluation and the MLflow run.

    Raises
    ------
    InputError
        The folder cannot be used, or the model folder holds no model.
    WorkError
        This environment cannot serve, a server died, or too few answers came back to train on.
    """
    from laps_sd.serving.bench.servers import check_servers

    check_servers(options.model, options.draft, None, cpu=True)  # before anything of an earlier demo is taken away
    _clear(options.out)
    record_prompts, burst_prompts = _prompts(options)
    recorded = _record(options, record_prompts, steps)
    train_rows, held_out = _split(options, recorded, burst_prompts)
    trained = _train(options, train_rows, steps)
    evaluation = _evaluate(options, held_out, trained["run_id"], steps)
    compared = _compare(options, burst_prompts, steps)
    return {
        **compared,
        "evaluation": evaluation,
        "run_id": trained["run_id"],
        "experiment": trained["experiment"],
        "bundle": str(options.out / "bundle"),
        "serve": _serve_command(options),
        "tracking_uri": tracking_uri(options.out),
        "recorded": len(recorded),
        "trained_on": len(train_rows),
    }


def _serve_command(options: DemoOptions) -> str:
    """The command line that serves with the demo's bundle, and with the drafts that it was trained on."""
    from laps_sd.serving.process.speculation import speculation_args

    drafts = shlex.join(speculation_args(options.draft))
    bundle = shlex.quote(str(options.out / "bundle"))
    return f"laps-sd serve --cpu -- {drafts} --schedule-policy laps-sd --laps-sd-bundle {bundle}"


def tracking_uri(out: Path) -> str:
    """The MLflow store inside the demo's folder."""
    return f"sqlite:///{(out / 'mlflow.db').resolve()}"


def _clear(out: Path) -> None:
    """Make the folder and take away what an earlier demo left; anything else in it stays."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in OUTPUTS:
            old = out / name
            if old.is_dir():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"the output folder {out} cannot be written to: {error.strerror}") from error


def _prompts(options: DemoOptions) -> tuple[list[Prompt], list[Prompt]]:
    """Prompts to record and prompts to compare on; no group of near-equal prompts is in both."""
    prompts = generate_prompts(4 * (options.recorded + options.burst), options.seed + 1)
    record = prompts[: options.recorded]
    seen = {prompt.group for prompt in record}
    fresh = [prompt for prompt in prompts[options.recorded :] if prompt.group not in seen]
    return record, fresh[: options.burst]


def _record(options: DemoOptions, prompts: list[Prompt], steps: Steps) -> list[RequestRecord]:
    from laps_sd.serving.process.server import SglangServer
    from laps_sd.serving.process.speculation import speculation_args

    out = options.out / "trace.parquet"
    args = [*speculation_args(options.draft), "--max-running-requests", "16"]
    with SglangServer(args, cpu=True, model=options.model, log=_log(options, "record")) as server:
        with steps.step("Start SGLang with speculative decoding") as report:
            server.wait_ready(progress=lambda seconds: report(min(seconds / 60, 0.95), f"{seconds:.0f} s"))
        with steps.step(f"Record {len(prompts)} prompts") as report:
            collect(
                server.url,
                prompts,
                out,
                concurrency=16,
                max_new_tokens=options.record_cap,
                tokenizer=_tokenizer(options.model),
                on_progress=lambda done, failed, total: report((done + failed) / total, f"{done} of {total}"),
            )
    return read_records(out)


def _log(options: DemoOptions, name: str) -> Path:
    folder = options.out / "servers"
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.log"


def _tokenizer(model: Path | None) -> Any:
    from laps_sd.data.tokenizer import load_tokenizer
    from laps_sd.serving.cpu.model import demo_model

    return load_tokenizer(str(model or demo_model()))


def _split(
    options: DemoOptions, recorded: list[RequestRecord], burst: list[Prompt]
) -> tuple[list[RequestRecord], list[RequestRecord]]:
    """Rows to train on and rows to evaluate on; what the comparison asks, or anything close to it, is in neither.

    A few dozen answers teach little: the trace recorded beforehand makes the models worth something. Another model's
    lengths would mislead, so it helps only where the model is the one that it was recorded with.
    """
    shipped = builtin_trace(options.draft) if options.model is None else []
    asked = {prompt.group for prompt in burst}
    own = {row.request_id for row in recorded}
    rows = [*recorded, *(row for row in shipped if row.request_id not in own)]
    return split([row for row in rows if row.group not in asked], options.held_out_share, options.seed)


def _train(options: DemoOptions, rows: list[RequestRecord], steps: Steps) -> dict[str, Any]:
    from laps_sd.training import train

    path = options.out / "train.parquet"
    write_records(path, rows)
    with steps.step(f"Train the predictors on {len(rows)} requests, logged to MLflow"):
        result = train(
            [path],
            options.out / "bundle",
            experiment="laps-sd-demo",
            seed=options.seed,
            tracking_uri=tracking_uri(options.out),
        )
    return dict(result.to_json())


def _evaluate(options: DemoOptions, held_out: list[RequestRecord], run_id: str, steps: Steps) -> dict[str, Any]:
    from laps_sd.training import evaluate

    path = options.out / "held-out.parquet"
    write_records(path, held_out)
    with steps.step(f"Evaluate on {len(held_out)} held-out requests"):
        return dict(evaluate(options.out / "bundle", [path], tracking_uri=tracking_uri(options.out), run_id=run_id))


def _compare(options: DemoOptions, prompts: list[Prompt], steps: Steps) -> dict[str, Any]:
    from laps_sd.serving.bench.run import run_bench

    with steps.step(f"Send {len(prompts)} requests at once to {' and to '.join(POLICIES)}") as report:
        return run_bench(
            policies=POLICIES,
            prompts=prompts,
            bundle=options.out / "bundle",
            model=options.model,
            draft=options.draft,
            max_running=options.max_running,
            rate=None,
            max_new_tokens=options.burst_cap,
            out_dir=options.out / "bench",
            cpu=True,
            seed=options.seed,
            rounds=1,
            progress=lambda word, share: report(share, word),
        )


def bench_requests(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Read latency (seconds, None where it failed) and output tokens of every request of the comparison, by policy."""
    requests: dict[str, list[dict[str, Any]]] = {policy: [] for policy in POLICIES}
    for line in (out / "bench" / "requests.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        finished = row["finish_s"]
        latency = None if finished is None else finished - row["arrival_s"]
        requests[row["policy"]].append({"latency_s": latency, "output_tokens": len(row["output_ids"])})
    return requests
