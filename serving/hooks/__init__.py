"""Our hooks in SGLang, the table of everything that they touch, and its check against the installed SGLang."""
