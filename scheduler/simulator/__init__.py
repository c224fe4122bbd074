"""Replays of requests through a policy on a simulated machine, and studies of many of them."""

from laps_sd.scheduler.simulator.engine import simulate
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.result import SimulationResult
from laps_sd.scheduler.simulator.study import Study, Trial, Workload
from laps_sd.scheduler.simulator.workload import ReplayRequest

__all__ = ["Machine", "ReplayRequest", "SimulationResult", "Study", "Trial", "Workload", "simulate"]
