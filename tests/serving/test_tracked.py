"""What the scheduler process says of a request when it ends."""

from collections.abc import Callable
from typing import Any

import pytest

from laps_sd.scheduler import make_policy
from laps_sd.serving.scheduler_side import SchedulerSide
from laps_sd.serving.wire import Carried


@pytest.mark.parametrize("limit", [0, 64])
def test_the_record_is_told_the_real_limit(make_req: Callable[..., Any], limit: int) -> None:
    side = SchedulerSide(make_policy("laps-sd"), keep_steps=True)
    req = make_req("a", limit=limit)
    side.track(req, Carried())
    side.rank([req])
    side.on_admit(req)
    assert side.on_finish(req, cut=True)["measured"]["max_new_tokens"] == limit
