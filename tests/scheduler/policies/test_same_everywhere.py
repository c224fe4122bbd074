"""Ranks on unlike processors order alike: with AVX-512 and without, with fused multiplication and without."""

import os
import subprocess
import sys

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

DECISIONS = """
import random
from laps_sd.scheduler import CostModel, Prediction, SurvivalCurve, make_policy, new_request, policy_class, policy_names

def decisions(name):
    policy, rng = make_policy(name, None, CostModel(0.02, 0.001, 4, 0.01, 1e-4), 8), random.Random(5)
    waiting, running, lengths = [], [], {}
    for _ in range(700):
        policy.start_round()
        for _ in range(rng.randrange(2)):
            tokens = max(int(rng.lognormvariate(4, 0.9)), 1)
            guess = round(tokens * rng.lognormvariate(0, 1.2), 3)
            prediction = Prediction(SurvivalCurve.lognormal(guess, 0.5), 2.0, 8.0) if rng.random() < 0.6 else None
            state = new_request(
                len(lengths), rng.randrange(500), settings=policy.settings, prediction=prediction,
                max_new_tokens=2000, max_correct_drafts=5, true_steps=tokens,
            )
            lengths[state.arrival] = tokens
            policy.on_arrival(state)
            waiting.append(state)
        policy.rank(waiting)
        victim = policy.victim(waiting[0], running) if waiting and len(running) == 8 else None
        if victim is not None:
            running.remove(victim)
            policy.on_preempt(victim, 30)
        while waiting and len(running) < 8:
            running.append(waiting.pop(0))
            policy.on_admit(running[-1])
        if victim is not None:
            waiting.append(victim)
        for state in list(running):
            k = rng.randrange(6)
            policy.on_step(state, k, 5, k + 1)
            if state.generated >= lengths[state.arrival]:
                running.remove(state)
                policy.on_finish(state)
        for state in (*waiting, *running):
            print(state.arrival, state.key, policy.reserve_tokens(state), policy.perceptible(state))

for name in policy_names():
    if name == policy_class(name).name or name == "laps-sd:unseeded":
        decisions(name)
"""


def decided(**changes: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DECISIONS], env={**os.environ, **changes}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_places_do_not_depend_on_the_instructions_of_the_processor():
    features = [feature for feature in __cpu_dispatch__ if __cpu_features__[feature]]
    here = decided()
    assert len(here.splitlines()) > 10_000
    assert decided(NPY_DISABLE_CPU_FEATURES=" ".join(features)) == here
    # The C library chooses its exponentials and logarithms by the processor too.
    assert decided(GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F") == here
