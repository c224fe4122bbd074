"""Names that travel between SGLang's processes, in one place: flags, environment, keys."""

#: The policy's name on the command line.
POLICY = "laps-sd"
#: Set by the launcher for its children; holds the options as JSON. Without it a child registers nothing.
ACTIVE_ENV = "LAPS_SD_ACTIVE"
#: The kill switch: with ``1`` the flags are accepted and ignored, and the server schedules with fcfs.
DISABLE_ENV = "LAPS_SD_DISABLE"
#: SGLang releases on which every test of ours ran.
SUPPORTED_SGLANG = ("0.5.23",)
#: Key of ``custom_params`` under which *our* numbers travel from the tokenizer process to the scheduler.
WIRE_KEY = "__laps_sd__"
#: Key of ``custom_params`` under which a *client* may send hints.
HINT_KEY = "laps_sd"
#: Key of ``meta_info`` under which a response carries the per-request fields.
META_KEY = "laps_sd"
