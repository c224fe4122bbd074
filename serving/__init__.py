"""laps-sd inside SGLang: plugin and launch flags, what is done for each request, a CPU stand-in, live benchmarks.

`plugin` is what SGLang calls. Without the flag it loads `flags` and `termination` and nothing else; with it,
`preflight` checks the installation, `launch` carries the options (`config`) to the other processes, and `hooks` puts
our part of a request's life (`requests`) into SGLang's own (`engine` says what we read of it).
"""
