"""What a client says of its own request moves that request and nobody else's."""

from collections.abc import Callable
from typing import Any

from laps_sd.scheduler import make_policy
from laps_sd.serving.requests.exchange import Attachment
from laps_sd.serving.requests.scheduler_side import SchedulerSide

Make = Callable[..., Any]


def trust_after(make_req: Make, prediction: Make, *, hinted: bool) -> float:
    """Trust after 64 requests of which those that were said to be the longest were the shortest."""
    side = SchedulerSide(make_policy("laps-sd", slots=2))
    for i in range(64):
        req = make_req(f"r{i}", limit=1000)
        side.on_received(req, Attachment(prediction(600 - 9 * i), hinted=hinted))
        side.rank([req])
        side.on_admit(req)
        for _ in range(1 + i):
            side.on_step(req, 0, 0, 1)
            req.output_ids.append(5)
        side.on_finish(req, cut=False)
    policy: Any = side.policy
    return float(policy.population.trust)


def test_wrong_hints_cost_predictions_no_trust(make_req: Make, prediction: Make) -> None:
    policy: Any = make_policy("laps-sd")
    assert trust_after(make_req, prediction, hinted=False) < policy.population.trust, "wrong predictions do"
    assert trust_after(make_req, prediction, hinted=True) >= policy.population.trust


def test_a_hinted_request_is_ranked_by_its_hint(make_req: Make, prediction: Make) -> None:
    side = SchedulerSide(make_policy("laps-sd"))
    queue = [make_req("long"), make_req("short")]
    side.on_received(queue[0], Attachment(prediction(90)))
    side.on_received(queue[1], Attachment(prediction(10), hinted=True))
    side.rank(queue)
    assert [req.rid for req in queue] == ["short", "long"]
