"""Why did the server die? One line out of SGLang's log."""

import re
from pathlib import Path

from laps_sd.serving.termination.refuse import PREFIX

_TAIL_BYTES = 200_000
_LONGEST = 300
_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d [^\]]*\]\s*")
#: The last line of a Python traceback, as ``sglang.srt.SomeError: text``.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Exit|Interrupt)\b(?::|$)")
_USAGE = re.compile(r"^\S+(?: \S+)*: error: ")
#: What a process says when another one failed: true, but not the cause.
_CONSEQUENCE = re.compile(r"scheduler died|sigquit|KeyboardInterrupt|kill_process_tree|SystemExit", re.IGNORECASE)


def telling_line(log: Path) -> str:
    """Return the line of ``log`` that says best why the server ended.

    In this order: a refusal of ours, the exception of the process that failed first, a wrong argument, the last line.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _TAIL_BYTES, 0))
            text = file.read().decode("utf-8", errors="replace")
    except OSError as error:
        return f"its log cannot be read ({error.strerror})"
    lines = [_STAMP.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    refusals = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)]
    causes = [line for line in lines if _EXCEPTION.match(line) and not _CONSEQUENCE.search(line)]
    usage = [line for line in lines if _USAGE.match(line)]
    found = (refusals or causes or usage or lines or ["it wrote nothing"])[-1]
    return found if len(found) <= _LONGEST else found[: _LONGEST - 1] + "…"
