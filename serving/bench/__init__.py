"""The live comparison: one workload sent to real servers, policies in turn, and what a client saw of it."""
