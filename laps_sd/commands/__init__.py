"""One short module per verb; each has ``register(app)`` and imports its room only when the verb runs."""
