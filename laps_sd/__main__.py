"""``python -m laps_sd``: the command line."""

from laps_sd.cli import main

main()
