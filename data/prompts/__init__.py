"""Prompts that the project wrote itself, for the built-in trace, the demo and the benchmarks.

A seeded generator: short templates filled from word lists, in several languages, of kinds whose answers differ in
length from one token to many hundreds and in how well n-grams guess them. Nothing in it comes from anybody's data set.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from laps_sd.data.collection.prompt import Prompt
from laps_sd.data.prompts import brief, languages, texts, writing
from laps_sd.data.prompts.drawing import Drawing
from laps_sd.errors import InputError

Kind = Callable[[Drawing], tuple[str, str]]

#: Every kind of prompt: the function draws (prompt, subject).
KINDS: dict[str, Kind] = {**brief.KINDS, **texts.KINDS, **writing.KINDS, **languages.KINDS}

#: ``source`` of the records made from these prompts.
SOURCE = "laps-sd-prompts"

_TRIES = 200


def generate_prompts(n: int, seed: int, kinds: Sequence[str] | None = None) -> list[Prompt]:
    """Return ``n`` different prompts in random order; the same arguments give the same prompts.

    Every stretch of the list holds all kinds alike, so that a run that was cut still covers them.

    Parameters
    ----------
    n
        How many; about ten thousand are possible with all kinds.
    seed
        Seed of the draws.
    kinds
        Names out of ``KINDS``; all of them by default.

    Raises
    ------
    InputError
        An unknown kind, or more prompts than the kinds can give.
    """
    names = list(KINDS if kinds is None else kinds)
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        raise InputError(f"unknown kind of prompt {unknown}; the kinds are {', '.join(KINDS)}")
    rng = np.random.default_rng(seed)
    drawing = Drawing(rng)
    seen: set[str] = set()
    prompts: list[Prompt] = []
    spent: set[str] = set()
    while len(prompts) < n:
        if len(spent) == len(names):
            raise InputError(f"these kinds give {len(prompts)} different prompts, {n} were asked for; add kinds")
        for index in rng.permutation(len(names)):
            name = names[index]
            if name in spent or len(prompts) == n:
                continue
            for _ in range(_TRIES):
                prompt, subject = KINDS[name](drawing)
                if prompt not in seen:
                    break
            else:
                spent.add(name)
                continue
            seen.add(prompt)
            prompts.append(
                Prompt(f"{name}-{len(prompts):05d}", prompt, category=name, group=_group(name, subject), source=SOURCE)
            )
    return prompts


def _group(kind: str, subject: str) -> str:
    """Prompts of one kind about one thing belong together; a subject that is a whole text goes by its digest."""
    if len(subject) > 60:
        subject = blake2b(subject.encode(), digest_size=6).hexdigest()
    return f"{kind}/{subject}"
