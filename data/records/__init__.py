"""The request record: its schema, and reading and writing it whatever the kind of file."""
