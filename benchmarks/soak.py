"""Soak CPU servers: thousands of requests that misbehave; ends with 1 if an answer is lost or wrong, or anything leaks.

.venv/bin/python benchmarks/soak.py --requests 2000
.venv/bin/python benchmarks/soak.py --requests 500 --part plain --seed 7

Every question is asked once, alone, of a server without laps-sd. Then hundreds of requests with these questions reach
servers with laps-sd, all of them different in what they say of themselves and in how their clients behave: each that
waits for its answer must get the same one. In the part "faults" one of our functions raises in each server.
"""

import argparse
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
import yaml
from soak_client import Ending, Visit, ask, draw_visits
from soak_inside import ERRORS, POINTS, Census, Fault, census, install
from soak_questions import Json, Question, draw_questions

from laps_sd.data import read_records
from laps_sd.errors import LapsError, WorkError
from laps_sd.serving.cpu.model import draft_model
from laps_sd.serving.process.exposition import samples_of
from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import speculation_args

#: Told what happens.
Tell = Callable[[str], None]

#: Few slots and little KV memory: requests wait, lose their slots for each other, and are retracted.
SLOTS = 6
COMMON = [
    *("--max-running-requests", str(SLOTS), "--max-total-tokens", "700"),
    *("--chunked-prefill-size", "64", "--enable-metrics"),
]
#: Ways of serving. Under the last two SGLang's own count of penalties hangs on who else is there (docs/serving.md).
SETTINGS = {"plain": ["--disable-overlap-schedule"], "overlap": [], "n-gram drafts": speculation_args("ngram")}
PENALTIES_COMPARABLE = ("plain",)
#: Features whose grammar SGLang compiles before the request may run.
GUIDED = ("regex", "schema")
#: Tokens that a verify step gives at most.
MOST_IN_A_STEP = 8
FAULTS = "faults"
PARTS = (*SETTINGS, FAULTS)
#: Clients at the same time.
CLIENTS = 24
#: Layers of the demo model that serve: few, because order matters here and sense does not.
LAYERS = 8
#: What a process may weigh more in the last quarter of a soak than in the third, megabytes, and a share of the whole.
SLACK_MB, SLACK = 24.0, 0.02
MOST_SHOWN = 10


@dataclass(slots=True)
class Check:
    """Something that must be true of a server at the end."""

    name: str
    good: bool
    found: str


@dataclass(slots=True)
class Run:
    """What came of the visits to one server.

    Attributes
    ----------
    name : str
        How it served.
    fault : Fault or None
        What raised there.
    visits, endings : list
        In the order in which they were made.
    lost, wrong : list of str
        Visits that got no answer though they waited for it, and those that got another than an undisturbed one.
    checks : list of Check
    seconds : float
    """

    name: str
    fault: Fault | None
    visits: list[Visit]
    endings: list[Ending] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def title(self) -> str:
        """How it served, and what raised there."""
        f = self.fault
        return self.name if f is None else f"{self.name}, {f.point} raises {f.error} from call {f.call} on"

    @property
    def good(self) -> bool:
        """Whether nothing was lost, nothing wrong, and every check holds."""
        return not self.lost and not self.wrong and all(check.good for check in self.checks)

    def table(self) -> list[tuple[str, str, int]]:
        """How clients behaved, how that ended, and how often."""
        counted = Counter((v.manner, e.how) for v, e in zip(self.visits, self.endings, strict=True))
        return [(manner, how, count) for (manner, how), count in sorted(counted.items())]


def run_soak(
    *,
    requests: int,
    out_dir: Path,
    parts: Sequence[str] = PARTS,
    faults: int = 4,
    questions: int = 150,
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> list[Run]:
    """Soak servers in turn.

    Parameters
    ----------
    requests : int
        Requests in all; each part gets its share.
    out_dir : Path
        Receives logs, records and configurations.
    parts : sequence of str
        Of `PARTS`.
    faults : int
        Servers of the part "faults".
    questions : int
        Unlike questions.
    seed : int
        The same seed draws the same requests.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    asked = draw_questions(questions, seed)
    expected = undisturbed(asked, out_dir, tell)
    share = requests // len(parts)
    plans: list[tuple[str, Fault | None, int]] = [(name, None, share) for name in parts if name != FAULTS]
    if FAULTS in parts:
        plans += [("plain", fault, share // faults) for fault in draw_faults(faults, seed)]
    runs = []
    for number, (name, fault, count) in enumerate(plans):
        run = Run(name, fault, draw_visits(asked, max(count, 1), seed + 1 + number))
        soak_server(run, expected, out_dir / f"server-{number}", tell)
        runs.append(run)
    return runs


def draw_faults(count: int, seed: int) -> list[Fault]:
    """Return ``count`` faults at unlike points, early enough that each strikes."""
    rng = random.Random(seed)  # noqa: S311
    points = rng.sample(POINTS, min(count, len(POINTS)))
    return [Fault(point, rng.choice((1, 3, 12, 30)), rng.choice(ERRORS)) for point in points]


def undisturbed(questions: Sequence[Question], out_dir: Path, tell: Tell) -> dict[int, Ending]:
    """Ask each question alone, of a server without laps-sd; return the answers by the question's key."""
    tell("a server without laps-sd, each question alone")
    args = [*COMMON, *SETTINGS["plain"]]
    with SglangServer(args, cpu=True, model=draft_model(LAYERS), log=out_dir / "undisturbed.log") as server:
        server.wait_ready()
        endings = {}
        for question in questions:
            visit = Visit(question.key, question, "waits", None, None, stream=False, after_s=0.0, after_events=0)
            endings[question.key] = ask(server.url, visit)
            if endings[question.key].how == "failed" and question.feature != "invalid":
                raise WorkError(f"a server without laps-sd fails at {question}: {endings[question.key].detail}")
        return endings


def soak_server(run: Run, expected: Mapping[int, Ending], folder: Path, tell: Tell) -> None:
    """Make the visits of a run to one fresh server, and judge it; its files go to ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = {
        "unpredicted": True,
        "policy": {"recompute_weight": 0},  # as if resuming were free, so that many are preempted
        "hints": {"priority": True},
        "record": {"path": str(folder / "trace.jsonl"), "prompts": "none"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    ours = ["--schedule-policy", "laps-sd", "--laps-sd-config", str(folder / "config.yaml")]
    tell(run.title)
    args, env = [*COMMON, *SETTINGS[run.name], *ours], install(folder / "inside", run.fault)
    with SglangServer(args, cpu=True, model=draft_model(LAYERS), log=folder / "server.log", env=env) as server:
        server.wait_ready()
        started = time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as pool:
            for number, ending in enumerate(pool.map(lambda visit: ask(server.url, visit), run.visits)):
                run.endings.append(ending)
                if number % 100 == 99:
                    tell(f"  {number + 1} of {len(run.visits)} after {time.monotonic() - started:.0f} s")
        run.seconds = time.monotonic() - started
        judge(run, expected)
        run.checks.append(idle(server))
        if run.checks[-1].good:
            run.checks += checks_of(server, run, folder)


def judge(run: Run, expected: Mapping[int, Ending]) -> None:
    """Compare every ending with the undisturbed one."""
    for visit, ending in zip(run.visits, run.endings, strict=True):
        right = expected[visit.question.key]
        what = f"{visit.rid} {visit.manner}, {visit.question.feature}, {visit.question.endpoint}"
        if ending.how == "failed" and right.how != "failed":
            run.lost.append(f"{what}: {ending.detail}")
        elif visit.manner == "waits" and ending.how != right.how:
            run.lost.append(f"{what}: {ending.how} instead of {right.how} {ending.detail}")
        elif comparable(run.name, visit.question) and not matches(ending, right, visit.question.feature):
            stream = ", streamed" if visit.stream else ""
            run.wrong.append(f"{what}{stream}: {ending.answers} instead of {right.answers}")


def comparable(setting: str, question: Question) -> bool:
    """Whether an answer hangs on nothing but its question there."""
    return question.feature != "penalties" or setting in PENALTIES_COMPARABLE


def matches(ending: Ending, right: Ending, feature: str = "plain") -> bool:
    """Whether an answer is the right one, or where it was aborted the beginning of it.

    A request that is aborted while its grammar is being compiled gets one token, which SGLang draws for a stand-in
    prompt of one token (`Req.set_finish_with_abort`).
    """
    if ending.how == "answered":
        return ending.answers == right.answers
    if ending.how == "aborted":
        return all(_begins(answer, right.answers) or _in_compilation(answer, feature) for answer in ending.answers)
    return True


def _in_compilation(answer: Json, feature: str) -> bool:
    return feature in GUIDED and answer["end"] == "abort" and len(answer["ids"]) == 1


def _begins(answer: Json, right: list[Json]) -> bool:
    """Whether it is the beginning of a right answer, or goes on for a verify step where that ends.

    Of a request that is being aborted SGLang looks for no other end, so what a step gave behind a stop string stays.
    """
    ids = answer["ids"]
    if ids is None:
        return True
    return any(
        other["ids"] is not None
        and ids[: len(other["ids"])] == other["ids"][: len(ids)]
        and len(ids) <= len(other["ids"]) + MOST_IN_A_STEP
        for other in right
    )


def idle(server: SglangServer, timeout_s: float = 300.0) -> Check:
    """Wait until nothing runs or waits, and a little longer: an idle SGLang dies of KV tokens or slots that leaked."""
    name, until = "idle, no KV token and no slot leaked", time.monotonic() + timeout_s
    while time.monotonic() < until:
        try:
            if httpx.post(server.url + "/flush_cache", timeout=60, trust_env=False).status_code == 200:
                time.sleep(5.0)
                server.raise_if_dead()
                return Check(name, server.health(), "serves")
        except (httpx.HTTPError, WorkError) as error:
            return Check(name, False, f"the server is gone ({error})")
        time.sleep(0.5)
    return Check(name, False, f"requests are left after {timeout_s:.0f} s")


def checks_of(server: SglangServer, run: Run, folder: Path) -> list[Check]:
    """Look at metrics, records, objects and memory of a server that is idle."""
    text = httpx.get(server.url + "/metrics", timeout=60, trust_env=False).text
    metrics: dict[str, float] = {}
    reasons: dict[str, float] = {}
    for sample, labels, value in samples_of(text):
        metrics[sample] = metrics.get(sample, 0.0) + value
        if sample == "laps_sd_preemptions_total":
            reasons[labels["reason"]] = value
    info = httpx.get(server.url + "/server_info", timeout=60, trust_env=False).json()
    (state,) = [state.get("laps_sd", {}) for state in info["internal_states"]]
    shown = metrics.get("laps_sd_requests", 0.0)
    processes = census(folder / "inside")
    checks = [
        Check("laps_sd_requests is 0", shown == 0, f"{shown:g}"),
        objects(processes),
        *map(flat, processes),
    ]
    if run.fault is not None:
        fell = metrics.get("laps_sd_fallbacks_total", 0.0)
        struck = bool(list((folder / "inside").glob("struck-*")))
        return [
            *checks,
            Check("the fault struck", struck, run.fault.point),
            Check("fell back to fcfs", fell > 0 and "failed_hook" in state, f"{fell:g} fallbacks, {state}"),
        ]
    told, counted = sum(ending.preemptions for ending in run.endings), sum(reasons.values())
    return [
        *checks,
        Check(
            "laps-sd ranked to the end", metrics.get("laps_sd_active") == 1 and "failed_hook" not in state, f"{state}"
        ),
        Check("some were preempted", counted > 0, f"{reasons}"),
        Check("as many preemptions counted as told", counted >= told, f"{counted:g} counted, {told} told"),
        recorded(run, folder, metrics),
    ]


def objects(processes: Sequence[Census]) -> Check:
    """Say what is left of requests: SGLang itself holds its last batch, so a few may live."""
    left = sum((Counter(process.objects) for process in processes), Counter[str]())
    found = ", ".join(f"{count} {name}" for name, count in left.items()) or "none"
    return Check("objects of requests left", max(left.values(), default=0) <= 4 * SLOTS, found)


def flat(process: Census) -> Check:
    """Compare what a process weighed in the third and in the last quarter of its life."""
    name, quarter = f"memory of {process.command.split()[0]}", len(process.weights) // 4
    third, fourth = median(process.weights[2 * quarter : 3 * quarter]), median(process.weights[3 * quarter :])
    return Check(name, fourth - third <= max(SLACK_MB, SLACK * third), f"{third:.0f} then {fourth:.0f} MB")


def recorded(run: Run, folder: Path, metrics: Mapping[str, float]) -> Check:
    """Every answer with a token is a row of the record."""
    answers = [a for e in run.endings if e.how == "answered" for a in e.answers]
    found = sum(1 for _ in read_records(folder / "trace.jsonl"))
    missing = metrics.get("laps_sd_unrecorded_requests_total", 0.0)
    return Check("every answer is recorded", found + missing >= len(answers), f"{found} rows of {len(answers)} answers")


def show(run: Run) -> None:
    """Print one server's table."""
    print(f"\n{run.title}: {len(run.visits)} requests in {run.seconds:.0f} s")
    print(f"  {'the client':<22}{'its request':<12}{'times':>6}")
    for manner, how, count in run.table():
        print(f"  {manner:<22}{how:<12}{count:>6}")
    for check in run.checks:
        print(f"  {'ok ' if check.good else 'BAD'} {check.name}: {check.found}")
    for kind, lines in (("lost", run.lost), ("wrong", run.wrong)):
        for line in lines[:MOST_SHOWN]:
            print(f"  {kind}: {line}")


def main() -> int:
    """Soak, print what ended how, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--part", choices=PARTS, action="append", help="may be given again; default: all")
    parser.add_argument("--faults", type=int, default=4, help="servers in which one of our functions raises")
    parser.add_argument("--questions", type=int, default=150, help="unlike questions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak-out"), help="logs and records of the servers")
    options = parser.parse_args()
    if min(options.requests, options.faults, options.questions) < 1:
        parser.error("--requests, --faults and --questions must be at least 1")
    started = time.monotonic()
    try:
        runs = run_soak(
            requests=options.requests,
            out_dir=options.out,
            parts=options.part or PARTS,
            faults=options.faults,
            questions=options.questions,
            seed=options.seed,
            tell=lambda line: print(f"[{time.monotonic() - started:.0f} s] {line}", flush=True),
        )
    except LapsError as error:
        print(f"laps-sd: {error}")
        return 2
    for run in runs:
        show(run)
    good = all(run.good for run in runs)
    lost, wrong = sum(len(run.lost) for run in runs), sum(len(run.wrong) for run in runs)
    requests = sum(len(run.visits) for run in runs)
    print(f"\n{requests} requests: {lost} lost, {wrong} wrong; {'good' if good else 'NOT GOOD'}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
