"""SGLang's arguments for each way of drafting."""

from pathlib import Path
from typing import Literal

Speculation = Literal["ngram", "standalone", "none"]


def speculation_args(kind: Speculation, *, draft: Path | None = None) -> list[str]:
    """SGLang's arguments for one way of drafting.

    Parameters
    ----------
    kind
        ``ngram`` (a trie of past text, a tree of 8 tokens), ``standalone`` (a draft model, a chain of 3 tokens) or
        ``none``.
    draft
        Model folder of the draft for ``standalone``; default: the demo model's first 24 layers.
    """
    if kind == "none":
        return []
    if kind == "ngram":
        return ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8"]
    if draft is None:
        from laps_sd.serving.cpu.model import draft_model

        draft = draft_model()
    return [
        *("--speculative-algorithm", "STANDALONE"),
        *("--speculative-draft-model-path", str(draft)),
        *("--speculative-num-steps", "3"),
        *("--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", "4"),
    ]
