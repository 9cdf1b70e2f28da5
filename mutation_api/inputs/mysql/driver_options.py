"""Options of a URL as PyMySQL takes them."""

from __future__ import annotations

from typing import Any

from mutation_api.inputs.source_url import SourceUrl

__all__ = ["driver_options"]

_TRUE = ("true", "1", "yes", "on")


def driver_options(url: SourceUrl) -> dict[str, Any]:
    """The options of a URL, so that the encryption is what the URL asks for; the character set is ours."""
    return {name: _typed(name, text) for name, text in url.options.items() if name != "charset"}


def _typed(name: str, text: str) -> Any:
    """The value of an option, whose form the URL has checked."""
    if name.endswith("_timeout"):
        return int(text)
    is_switch = name == "ssl_disabled" or name.startswith(("ssl_check_", "ssl_verify_"))
    return text in _TRUE if is_switch else text
