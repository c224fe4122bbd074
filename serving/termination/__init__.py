"""How processes end: a plugin that refuses takes the whole server with it, and no child outlives its parent."""
