"""A machine small enough to be read at a glance: one round is one verify step of one token, prefill costs nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from laps_sd.scheduler import Policy, Prediction, RequestState, SurvivalCurve, new_request


@dataclass
class Job:
    """One request: the round in which it arrives and the steps that it takes."""

    arrives: int
    steps: int
    predicted: float | None = None
    priority: int = 0
    prompt_tokens: int = 10


@dataclass
class Admission:
    """Who got a slot in which round, since when it waited, and the deadlines of overdue requests left behind."""

    round: int
    arrival: int
    waiting_since: int
    deadline: int
    overdue: list[int]


@dataclass
class TinyEngine:
    """Admit from the front of the ranked queue, let running requests give way, make one step of each."""

    policy: Policy
    slots: int
    now: int = 0
    waiting: list[RequestState] = field(default_factory=list)
    running: list[RequestState] = field(default_factory=list)
    states: list[RequestState] = field(default_factory=list)
    finished: dict[int, int] = field(default_factory=dict)
    admissions: list[Admission] = field(default_factory=list)

    def arrive(self, job: Job) -> RequestState:
        prediction = None
        if job.predicted is not None:
            prediction = Prediction(SurvivalCurve.lognormal(job.predicted, 0.3), 1.0, 8.0)
        state = new_request(
            len(self.states),
            job.prompt_tokens,
            settings=self.policy.settings,
            prediction=prediction,
            priority=job.priority,
            true_steps=job.steps,
        )
        self.states.append(state)
        self.policy.on_arrival(state)
        self.waiting.append(state)
        return state

    def round(self) -> None:
        self.policy.start_round()
        self.policy.rank(self.waiting)
        displaced = []
        while self.waiting:
            candidate = self.waiting[0]
            if len(self.running) == self.slots:
                victim = self.policy.victim(candidate, self.running)
                if victim is None:
                    break
                self.running.remove(victim)
                self.policy.on_preempt(victim)
                displaced.append(victim)
            overdue = [s.deadline for s in self.waiting[1:] if s.overdue and s.priority == candidate.priority]
            self.admissions.append(
                Admission(self.policy.now, candidate.arrival, candidate.waiting_since, candidate.deadline, overdue)
            )
            self.running.append(self.waiting.pop(0))
            self.policy.on_admit(candidate)
        self.waiting += displaced
        assert len(self.running) == self.slots or not self.waiting, "a slot idles while requests wait"
        self.now += 1
        for state in list(self.running):
            self.policy.on_step(state, 0, 0, 1)
            if state.steps == state.true_steps:
                self.running.remove(state)
                self.policy.on_finish(state)
                self.finished[state.arrival] = self.now

    def run(self, jobs: Sequence[Job]) -> dict[int, int]:
        """Return the round in which each job, in the order of arrival, had its last token."""
        todo = sorted(jobs, key=lambda job: job.arrives)
        while todo or self.waiting or self.running:
            while todo and todo[0].arrives <= self.now:
                self.arrive(todo.pop(0))
            self.round()
        return self.finished


@pytest.fixture
def tiny_engine():
    """Return the class: `tiny_engine(policy, slots)`."""
    return TinyEngine


@pytest.fixture
def job():
    """Return the class of its jobs."""
    return Job
