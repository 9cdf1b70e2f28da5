"""Requests to a schema registry with confluent-kafka's client: the schemas of messages."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Self

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from mutation_api.cdc.messages.avro import WriterSchema
from mutation_api.errors import ConfigurationError, ConnectionFailedError, InputFormatError

RETRY_SECONDS = 0.5
_NOT_FOUND = 404
_FORBIDDEN = (401, 403)
_PASSING = (408, 429)
_OTHERS_FAULT = 500
_OWN = {"max.retries": 0}
"""This class repeats requests itself, as long as the timeout allows."""
_NUMBERS = (
    "timeout",
    "cache.capacity",
    "cache.latest.ttl.sec",
    "max.retries",
    "retries.wait.ms",
    "retries.max.wait.ms",
)
_USERS = re.compile(r"//[^,\s]*@")
"""Matches user and password up to the last @, since a password may contain a slash."""


class Registry:
    """A registry with Confluent's interface, such as Apicurio's; a context manager."""

    def __init__(self, source_id: str, url: str, settings: Mapping[str, Any], timeout_seconds: float) -> None:
        """Prepare; requests are sent later.

        Args:
            source_id: name of the source in messages.
            url: address of the registry, or several separated by commas.
            settings: settings of confluent-kafka's ``SchemaRegistryClient``; numbers may be strings.
            timeout_seconds: how long to wait for an answer.

        Raises:
            ConfigurationError: If a setting is unknown or has an invalid value.
        """
        self._shown = _USERS.sub("//", url)
        self._timeout_seconds = timeout_seconds
        try:
            numbers = {name: float(settings[name]) for name in _NUMBERS if name in settings}
            chosen = {"timeout": timeout_seconds, **_OWN, **settings, **numbers, "url": url}
            self._client = SchemaRegistryClient(chosen)
        except (ValueError, TypeError, OSError) as error:
            raise ConfigurationError(
                f"{source_id}: invalid settings of the schema registry {self._shown}: "
                f"{_USERS.sub('//', str(error))}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()

    def schema(self, number: int, where: str) -> WriterSchema:
        """Return the schema with this number, and the schemas that it refers to.

        Args:
            number: number of the schema.
            where: place of the message that requires it.

        Raises:
            ConnectionFailedError: If the registry does not answer in time, or refuses the request.
            InputFormatError: If it does not have the schema, or it is not an Avro schema.
        """
        end = time.monotonic() + self._timeout_seconds
        while True:
            try:
                found = self._client.get_schema(number)
                self._check_kind(found, number, where)
                return WriterSchema(found.schema_str, tuple(self._references(found)))
            except InputFormatError:
                raise
            except SchemaRegistryError as error:
                if not _may_pass(error.http_status_code) or time.monotonic() > end:
                    raise self._refused(error, number, where) from error
            except Exception as error:  # the client raises any error of its transport
                if time.monotonic() > end:
                    raise self._silent(error, number, where) from error
            time.sleep(RETRY_SECONDS)

    def _references(self, schema: Any) -> list[str]:
        """Return the schemas that one refers to, each once, after those that it refers to itself."""
        texts: dict[str, None] = {}
        for each in schema.references or ():
            found = self._client.get_version(each.subject, each.version).schema
            texts |= dict.fromkeys([*self._references(found), found.schema_str])
        return list(texts)

    def _check_kind(self, schema: Any, number: int, where: str) -> None:
        kind = schema.schema_type or "AVRO"
        if kind != "AVRO":
            raise InputFormatError(
                f"{where}: the message is written with schema {number} of the registry {self._shown}, which "
                f"is a schema for {kind}; only Avro is supported, and JSON without a registry. Choose the "
                "connector's value.converter accordingly"
            )

    def _refused(self, error: SchemaRegistryError, number: int, where: str) -> Exception:
        text = f"{where}: the schema registry {self._shown} did not return schema {number}: {error}"
        if error.http_status_code == _NOT_FOUND:
            return InputFormatError(
                f"{text}. Check that this is the registry of the connector that wrote the message, and that "
                "its converter writes four-byte schema ids, as Confluent's does. If the schema was "
                "deleted, register it again"
            )
        if error.http_status_code in _FORBIDDEN:
            return ConnectionFailedError(
                f"{text}. Pass the user as https://USER@HOST and the password in the environment variable "
                "HIVE_MUTATE_SCHEMA_REGISTRY_PASSWORD, or use the setting "
                "schema.registry.basic.auth.user.info"
            )
        return ConnectionFailedError(text)

    def _silent(self, error: Exception, number: int, where: str) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"{where}: the schema registry {self._shown} did not return schema {number} for "
            f"{self._timeout_seconds:g} s (last error: {type(error).__name__}: {error}). Nothing was "
            "written; the next run continues from the watermark"
        )


def _may_pass(status: int) -> bool:
    return status >= _OTHERS_FAULT or status in _PASSING
