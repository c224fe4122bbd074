"""Which requests belong together (equal and nearly equal prompts), and splits that keep them so."""
