"""Reading `/metrics` with Prometheus' own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Name and values of labels -> value, as Prometheus' own parser reads it."""
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation and family.type != "unknown" for family in families)
    return {
        (s.name, *(v for _, v in sorted(s.labels.items()))): s.value
        for family in families
        for s in family.samples
    }
