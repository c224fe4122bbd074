"""Names of policies in a comparison: SGLang's own, and ours."""

from laps_sd.scheduler import policy_class

#: Policies that SGLang knows by itself: their names are its own, also where one of ours is called the same.
SGLANG_POLICIES = ("fcfs", "hrrn", "lpm", "dfs-weight", "lof", "random", "shortest-prefill-first")
#: Before the name of one of ours, where SGLang has one of this name too.
PLUGIN = "plugin:"


def ranks_by_plugin(policy: str) -> bool:
    """Whether a policy is ours, and not one of SGLang's own."""
    return policy not in SGLANG_POLICIES


def of_ours(policy: str) -> str:
    """Return the name that a policy of ours has in the registry; of one of SGLang's, that of ours with its rule."""
    return policy.removeprefix(PLUGIN)


def needs_bundle(policy: str) -> bool:
    """Whether a policy is ours and uses predictions."""
    return ranks_by_plugin(policy) and policy_class(of_ours(policy)).uses_predictions


def file_name(policy: str) -> str:
    """Return the policy's name as part of a file's."""
    return policy.replace(":", "-")


def turn_name(policy: str, number: int) -> str:
    """Return the name of a turn as part of file names."""
    return f"{number}-{file_name(policy)}"
