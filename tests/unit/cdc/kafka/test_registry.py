"""Settings of a registry's client; what a registry says is judged by a real one."""

from __future__ import annotations

import pytest

from mutation_api.cdc.kafka.registry import Registry
from mutation_api.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "settings", "said"),
    [
        ("ftp://user:pass@r", {}, "schema registry ftp://r: Invalid url ftp://r"),
        ("http://r", {"no.such": "1"}, "Unrecognized properties: no.such"),
        ("http://r", {"timeout": "soon"}, "could not convert"),
        ("http://r", {"ssl.ca.location": "/no/such"}, "No such file"),
        ("http://r", {"basic.auth.user.info": "reader"}, "{username}:{password}"),
    ],
)
def test_settings_that_are_not_valid(url: str, settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Registry("debezium:erp", url, settings, 1.0)


def test_numbers_may_be_texts() -> None:
    """As they come from a file of settings."""
    with Registry("debezium:erp", "http://r", {"timeout": "3", "max.retries": "2"}, 1.0) as registry:
        client = registry._client._rest_client
        assert (client.timeout, client.max_retries) == (3.0, 2)
