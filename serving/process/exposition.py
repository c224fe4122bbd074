"""A server's ``/metrics``: Prometheus text, read by prometheus-client's own parser."""

from collections.abc import Iterator, Mapping


def samples_of(exposition: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield name, labels and value of every sample in Prometheus text.

    Raises
    ------
    ValueError
        It is no Prometheus text.
    """
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            yield sample.name, sample.labels, float(sample.value)
