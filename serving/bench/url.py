"""One run of the live comparison's requests on a server that runs already."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from laps_sd.data import Prompt
from laps_sd.data.collection.server import address_of, is_here, server_info
from laps_sd.data.meta_info import from_server_info
from laps_sd.errors import InputError
from laps_sd.serving.bench.arrivals import Arrivals, of_rate
from laps_sd.serving.bench.figures import compare_tokens, ratios_of, summary_of, write_requests
from laps_sd.serving.bench.load import Json, at_times, workload
from laps_sd.serving.bench.run import OnStage, check_usage, take_turn, teller
from laps_sd.serving.flags import POLICY
from laps_sd.serving.monitoring.served import Served, replicas_of, said_in


@dataclass(frozen=True, slots=True)
class RunningServer:
    """What a server says about itself.

    Attributes
    ----------
    policy : str
        What it schedules with; of laps-sd, the policy that ranks there.
    plugin : bool
        Whether that is ours, and so timed in its metrics.
    slots : int or None
        Requests that decode together, over all its replicas.
    model, draft : str or None
        As a record names them.
    template_from : Path or None
        Folder of its tokenizer, where that is on this machine.
    served : Served or None
        What our plugin says that it ranks with.
    """

    policy: str
    plugin: bool
    slots: int | None
    model: str | None
    draft: str | None
    template_from: Path | None
    served: Served | None = None


def bench_url(
    url: str,
    *,
    prompts: Sequence[Prompt | str],
    out_dir: Path,
    max_new_tokens: int,
    policy: str | None = None,
    model: Path | str | None = None,
    rate: float | None = None,
    arrivals: Arrivals | None = None,
    warm_up: int = 0,
    seed: int = 0,
    api_key: str | None = None,
    progress: OnStage | None = None,
) -> Json:
    """Send one run to a server that runs already; see `laps_sd.serving.bench.run.run_bench`.

    The result has one policy, the one that the server schedules with.

    Parameters
    ----------
    policy : str, optional
        What the server is expected to schedule with.
    model : path, optional
        Whose chat template to apply; None: the server's, where its model folder is here, else none.
    api_key : str, optional
        For a server that was started with ``--api-key``.

    Raises
    ------
    InputError
        ``url`` is no address, no prompts, or the server schedules with another policy.
    WorkError
        No SGLang server answers at ``url``, or it answers no request.
    """
    check_usage([POLICY], prompts, rate=rate, warm_up=warm_up)
    url = url.rstrip("/")
    server = ask_server(url, api_key)
    if policy not in (None, server.policy):
        raise InputError(f"the server at {url} schedules with {server.policy}, not with {policy}; correct one of them")
    template = model if model is not None else server.template_from
    arrivals = arrivals or of_rate(rate)
    if arrivals.clock != "seconds" or arrivals.load is not None:
        raise InputError("a load, or arrivals in rounds, need servers that are started here; give a rate")
    requests = workload(prompts, template, max_new_tokens, cpu=False)
    requests = at_times(requests, arrivals.at(len(requests), seed))
    out_dir.mkdir(parents=True, exist_ok=True)
    turn = take_turn(
        url, server.policy, 0, requests, teller(progress, server.policy, 0, 1), plugin=server.plugin, api_key=api_key,
        clients=arrivals.senders,
    )  # fmt: skip
    write_requests(out_dir / "requests.jsonl", [turn])
    measured = turn.after(warm_up)
    return {
        "workload": {
            "n": len(requests), "slots": server.slots, "load": None, "seed": seed, "rate": arrivals.rate,
            "draft": server.draft, "model": server.model, "max_new_tokens": max_new_tokens, "rounds": 1, "cpu": None,
            "url": url, "warm_up": warm_up, **arrivals.described(), "capacity": None,
            "chat_template": all("input_ids" in request.body for request in requests),
        },
        "policies": {server.policy: summary_of([measured])},
        "ratios": ratios_of([measured], [server.policy]),
        **compare_tokens([turn]),
    }  # fmt: skip


def ask_server(url: str, api_key: str | None = None) -> RunningServer:
    """Ask ``/server_info``; see `bench_url` for what is raised."""
    info = server_info(url, api_key, needs=("model_path", "schedule_policy"))
    facts = from_server_info(info)
    folder = info.get("tokenizer_path") or info.get("model_path")
    here = isinstance(folder, str) and is_here(address_of(url)) and Path(folder).is_dir() and find_spec("transformers")
    return RunningServer(
        policy=_ranks_there(info) or info["schedule_policy"],
        plugin=_ranks_there(info) is not None or info["schedule_policy"] == POLICY,
        slots=_slots(info),
        model=facts.get("model"),
        draft=facts.get("draft"),
        template_from=Path(str(folder)) if here else None,
        served=next((told for state in said_in(info) if (told := Served.told(state)) is not None), None),
    )


def _ranks_there(info: Mapping[str, object]) -> str | None:
    """Return the name of the policy with which our plugin says that it ranks; None where it says nothing."""
    names = [state.get("policy") for state in said_in(info)]
    return next((name for name in names if isinstance(name, str)), None)


def _slots(info: Mapping[str, object]) -> int | None:
    """Return what the replicas really run with; the launch argument is null where SGLang chose by itself."""
    known = [state.get("effective_max_running_requests_per_dp") for state in replicas_of(info)]
    numbers = [slots for slots in known if isinstance(slots, int)]
    if known and len(numbers) == len(known):
        return sum(numbers)
    asked = info.get("max_running_requests")
    return asked if isinstance(asked, int) else None
