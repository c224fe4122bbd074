"""The table of ``docs/records.md``, derived from the schema."""

from laps_sd.data.records.schema import describe_fields


def fields_table() -> str:
    """Return the fields of a record as a Markdown table, one line each, in the order of the record."""
    lines = ["| field | type | unit | meaning | where it comes from |", "|---|---|---|---|---|"]
    for doc in describe_fields():
        name = f"**`{doc.name}`**" if doc.required else f"`{doc.name}`"
        lines.append(f"| {name} | {doc.kind} | {doc.unit} | {doc.meaning} | {doc.origin} |")
    return "\n".join(lines) + "\n"
