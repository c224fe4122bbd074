"""An SGLang server as a child process: started, awaited, explained when it dies, and never left behind."""
