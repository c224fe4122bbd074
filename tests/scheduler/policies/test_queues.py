"""The queues of Algorithm 1."""

import pytest

from laps_sd.scheduler import Settings
from laps_sd.scheduler.policies.queues import Queues
from laps_sd.scheduler.settings import PRESETS


@pytest.mark.parametrize(
    "constants", [Settings(**PRESETS["paper"]), Settings(), Settings(levels=1), Settings(levels=2, factor=7)]
)
def test_a_threshold_belongs_to_the_queue_above_it(constants: Settings) -> None:
    queues = Queues(constants)
    bound, last = constants.first_threshold, constants.levels - 1
    for k in range(constants.levels - 1):
        assert queues.of(bound) == k
        assert queues.of(bound * (1 + 1e-9)) == min(k + 1, last)
        bound *= constants.factor
    assert queues.of(1e300) == last
