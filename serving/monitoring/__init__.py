"""What an operator sees of a running server: series for Prometheus, what is served, and views of both."""
