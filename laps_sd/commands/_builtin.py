"""Make the built-in trace again: server, prompts, collection."""

from pathlib import Path

from laps_sd.data.builtin import CONCURRENCY, MAX_NEW_TOKENS, PROMPTS, SEED, Draft


def regenerate(draft: Draft, out: Path, requests: int | None) -> None:
    """Start the CPU server under ``draft``, send it the prompts of the built-in trace, write ``out``."""
    from laps_sd.commands._data import load_tokenizer
    from laps_sd.commands.collect import collect_with_bar
    from laps_sd.data.prompts import generate_prompts
    from laps_sd.serving.cpu.model import demo_model
    from laps_sd.serving.process.server import SglangServer, speculation_args

    first, count = PROMPTS[draft]
    prompts = generate_prompts(first + count, SEED)[first : first + min(count, requests or count)]
    model = demo_model()
    args = [*speculation_args(draft), "--max-running-requests", str(CONCURRENCY), "--enable-metrics"]
    with SglangServer(args, cpu=True, model=model, log=out.with_name(f"{out.name}.server.log")) as server:
        collect_with_bar(
            server.wait_ready().url,
            prompts,
            out,
            concurrency=CONCURRENCY,
            max_new_tokens=MAX_NEW_TOKENS,
            temperature=0.0,
            tokenizer=load_tokenizer(str(model)),
            resume=True,
            timeout_s=3600.0,
        )
