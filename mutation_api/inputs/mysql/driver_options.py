"""Options of a URL as PyMySQL takes them."""

from __future__ import annotations

from typing import Any

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.source_url import SourceUrl

__all__ = ["driver_options"]

_SWITCHES = ("ssl_check_hostname", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity")
_SWITCH_VALUES = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def driver_options(url: SourceUrl) -> dict[str, Any]:
    """The options of a URL, so that the encryption is what the URL asks for.

    Raises ConfigurationError: a value is not of its option's type.
    """
    return {name: _option(name, text, url) for name, text in url.options.items() if name != "charset"}


def _option(name: str, text: str, url: SourceUrl) -> Any:
    """The value of an option. Raises ConfigurationError."""
    try:
        if name in _SWITCHES:
            return _SWITCH_VALUES[text.lower()]
        return int(text) if name.endswith("_timeout") else text
    except (KeyError, ValueError) as error:
        allowed = "true or false" if name in _SWITCHES else "a whole number of seconds"
        raise ConfigurationError(f"source {url}: option {name} is {text!r}; it must be {allowed}") from error
