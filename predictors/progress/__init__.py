"""In-flight refinement: what an answer has said so far corrects the length that was predicted at its arrival."""
