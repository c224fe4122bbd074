"""What a soak asks: a few hundred greedy questions that use every feature whose answer can be compared.

Each is asked once while nothing else runs, and many times in the soak.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
Endpoint = Literal["generate", "completions", "chat"]

#: Paths of the endpoints.
PATHS: dict[Endpoint, str] = {
    "generate": "/generate",
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
}
#: What the OpenAI endpoints call SGLang's sampling parameters; the others have the same name.
_OPENAI_NAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens"}
_WORDS = ("river", "stone", "light", "early", "winter", "seven", "garden", "under", "paper", "slowly", "house", "blue")
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "count": {"type": "integer"}},
    "required": ["name", "count"],
}


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes
    ----------
    key : int
        Its number.
    feature : str
        Which feature it uses: a key of `FEATURES`.
    endpoint : str
        Where it is asked.
    text : str
        The prompt.
    sampling : dict
        SGLang's sampling parameters.
    """

    key: int
    feature: str
    endpoint: Endpoint
    text: str
    sampling: Json

    def body(self, rid: str, custom_params: object, priority: int | None, *, stream: bool) -> Json:
        """Return the body of one request, with what the client says of itself."""
        more: Json = {"rid": rid, "stream": stream}
        if priority is not None:
            more["priority"] = priority
        if self.endpoint == "generate":
            sampling = {**self.sampling, "custom_params": custom_params}
            return {"text": self.text, "sampling_params": sampling, **more}
        said = {_OPENAI_NAMES.get(name, name): value for name, value in self.sampling.items()}
        if isinstance(custom_params, dict):  # the OpenAI endpoints refuse anything else by themselves
            said["custom_params"] = custom_params
        if self.endpoint == "chat":
            said["messages"] = [{"role": "user", "content": self.text}]
        else:
            said["prompt"] = self.text
        return {"model": "soak", **said, **more}


def _plain(rng: random.Random) -> Json:
    return {"ignore_eos": rng.random() < 0.5}


def _penalties(rng: random.Random) -> Json:
    # SGLang subtracts some penalties and divides by others in an order that differs from process to process (that of a
    # set of classes), so that an answer with both kinds depends on which process gives it.
    kind = rng.choice(({"frequency_penalty": 0.7, "presence_penalty": 0.9}, {"repetition_penalty": 1.3}))
    one = kind | {"min_new_tokens": 4}  # which is too many for some
    return {name: one[name] for name in rng.sample(list(one), rng.randint(1, len(one)))}


#: What a question of each feature adds to its sampling parameters, and how often it is asked.
FEATURES: dict[str, tuple[int, Callable[[random.Random], Json]]] = {
    "plain": (8, _plain),
    "stop strings": (3, lambda rng: {"stop": rng.sample([".", "\n", " the", "e", "zzz"], 2)}),
    "stop tokens": (1, lambda rng: {"stop_token_ids": rng.sample(range(20, 400), 40)}),
    "penalties": (5, _penalties),
    "regex": (2, lambda rng: {"regex": rng.choice(["([a-z]{2,5} ){12}", "[0-9]{3}-[0-9]{4}", "(yes|no)( maybe)*"])}),
    "schema": (2, lambda _: {"json_schema": json.dumps(_SCHEMA)}),
    "n = 3": (3, lambda rng: {"n": 3, "ignore_eos": rng.random() < 0.5}),
    "logit bias": (1, lambda rng: {"logit_bias": {str(rng.randrange(20, 400)): 5.0}}),
    "invalid": (1, lambda rng: rng.choice([{"regex": "((("}, {"max_new_tokens": -1}, {"top_p": 2.0}])),
}


def draw_questions(count: int, seed: int) -> list[Question]:
    """Return ``count`` questions; the same ones for the same seed."""
    rng = random.Random(seed)  # noqa: S311
    weights = [weight for weight, _ in FEATURES.values()]
    questions = []
    for key in range(count):
        feature = rng.choices(list(FEATURES), weights)[0]
        # Half of them begin alike, so that requests share KV; a few are longer than a chunk of a prefill.
        shared = "Tell me more about this. " * rng.choice((0, 0, 1, 3))
        words = rng.choices(_WORDS, k=rng.choice((3, 8, 20, 60, 90)))
        sampling = {"temperature": 0.0, "max_new_tokens": rng.choice((1, 3, 6, 10, 20, 40))}
        sampling |= FEATURES[feature][1](rng)
        endpoint: Endpoint = rng.choice(("generate", "generate", "completions", "chat"))
        if feature == "schema" and endpoint != "generate":  # which have another name for it
            endpoint = "generate"
        questions.append(Question(key, feature, endpoint, f"{shared}Question {key}: {' '.join(words)}", sampling))
    return questions
