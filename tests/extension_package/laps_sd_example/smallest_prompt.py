"""A policy: the request with the smallest prompt first."""

from laps_sd.scheduler import Policy, RequestState


class SmallestPrompt(Policy):
    """Waiting requests by prompt length; nobody is preempted."""

    name = "smallest-prompt"

    def place(self, state: RequestState) -> None:
        """Requests are served in ascending order of ``key``; arrival breaks ties."""
        state.key = (-state.priority, 0, float(state.prompt_tokens), state.arrival)
