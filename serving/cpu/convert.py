"""Write a model folder that SGLang can load. Run as a process of its own: it needs torch and 1.5 GB for seconds.

``python -m laps_sd.serving.cpu.convert gguf SOURCE.gguf FOLDER`` unpacks a quantised GGUF file.
``python -m laps_sd.serving.cpu.convert truncate MODEL FOLDER LAYERS`` keeps the first layers of a Llama model.
"""

import sys
import warnings
from pathlib import Path

from laps_sd.serving.termination.supervise import end_with_parent


def from_gguf(source: Path, folder: Path) -> None:
    """Unpack the GGUF file ``source`` into ``folder``: bfloat16 weights, tokenizer, chat template, generation."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    settings = model.config.to_dict()
    # The loaded model is marked as quantised and refuses to be saved: copy its weights into a plain one.
    for key in ("quantization_config", "architectures", "model_type"):
        settings.pop(key, None)
    plain = LlamaForCausalLM(LlamaConfig(**settings))
    missing, unexpected = plain.load_state_dict(model.state_dict(), strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:  # SmolLM2 ties its output head to the embedding
        raise RuntimeError(f"the GGUF weights do not fit a Llama model: missing {missing}, unexpected {unexpected}")
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    plain.generation_config.eos_token_id = tokenizer.eos_token_id
    plain.generation_config.bos_token_id = tokenizer.bos_token_id
    plain.generation_config.pad_token_id = tokenizer.pad_token_id
    plain.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def truncate(model: Path, folder: Path, layers: int) -> None:
    """Write the model with only its first ``layers`` decoder layers: a cheap draft that often agrees with the whole."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    whole = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    whole.model.layers = whole.model.layers[:layers]
    whole.config.num_hidden_layers = layers
    if getattr(whole.config, "layer_types", None):
        whole.config.layer_types = whole.config.layer_types[:layers]
    whole.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


def main(argv: list[str]) -> None:
    """Run one conversion; a failure is one line on standard error and exit code 1."""
    warnings.simplefilter("ignore")
    end_with_parent()
    try:
        match argv:
            case ["gguf", source, folder]:
                from_gguf(Path(source), Path(folder))
            case ["truncate", model, folder, layers]:
                truncate(Path(model), Path(folder), int(layers))
            case _:
                sys.exit("usage: convert gguf SOURCE FOLDER | convert truncate MODEL FOLDER LAYERS")
    except Exception as error:  # the caller shows the last line: it must be the cause
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
