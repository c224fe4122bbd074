"""Who runs: the policies by name, what they are made of, and the orders that they keep from round to round."""

from laps_sd.scheduler.policies.base import Policy
from laps_sd.scheduler.policies.catalogue import make_policy, policy_class, policy_names

__all__ = ["Policy", "make_policy", "policy_class", "policy_names"]
