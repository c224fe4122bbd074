"""Records from a live SGLang server: prompts are sent, and what happened to each is written down at once."""
