"""The pure core: posterior, survival curve, service, queues, policies, simulator. Numpy and the standard library.

Units: tokens, verify steps, scheduling rounds; seconds only where a cost model gives them.
"""

from laps_sd.extensions import POLICIES
from laps_sd.scheduler.outcomes import RequestOutcome, summarise
from laps_sd.scheduler.policies.base import Policy
from laps_sd.scheduler.policies.catalogue import make_policy, policy_class, policy_names
from laps_sd.scheduler.posterior.base import AcceptancePosterior
from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.refinement import Refinement
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.simulator.engine import simulate
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.result import SimulationResult
from laps_sd.scheduler.simulator.workload import ReplayRequest
from laps_sd.scheduler.state import RequestState, new_request
from laps_sd.scheduler.survival import SurvivalCurve

__all__ = [
    "POLICIES",
    "AcceptancePosterior",
    "CostModel",
    "Machine",
    "Policy",
    "PosteriorSettings",
    "Prediction",
    "Refinement",
    "ReplayRequest",
    "RequestOutcome",
    "RequestState",
    "Settings",
    "SimulationResult",
    "SurvivalCurve",
    "make_policy",
    "make_posterior",
    "new_request",
    "policy_class",
    "policy_names",
    "simulate",
    "summarise",
]
