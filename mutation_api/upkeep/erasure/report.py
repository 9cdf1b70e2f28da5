"""The report of an erasure, which can be archived, and its signature.

The report contains no key. Keys are hashed with a random salt, which is part of the report. Its owner can
check whether a given key was erased, and anybody who has it can try keys until one fits. Values of a sought
partition column are left out of the names of directories.

The signature covers the report without the field ``signature``, as JSON with sorted keys, without blanks, in
UTF-8. Its key is a private key for Ed25519 in PEM, or any other file of at least 16 bytes for HMAC-SHA256.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mutation_api._version import __version__
from mutation_api.errors import ConfigurationError
from mutation_api.upkeep.erasure.obstacles import Obstacle
from mutation_api.upkeep.erasure.table_search import FoundFile, TableSearch

_HMAC, _ED25519 = "HMAC-SHA256", "Ed25519"
_LEAST_KEY_BYTES = 16
_PEM = b"-----BEGIN "
_VERDICTS = {
    "erased": "erased. No file below the tables' locations holds one of the keys",
    "unfinished": "NOT erased yet. Run the same command again",
    "dry run": "nothing was changed (dry run)",
}


def hashed(text: str, salt: bytes) -> str:
    """Return the hash of a key by which a report names it: HMAC-SHA256 with the salt, in hexadecimal."""
    return hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class ErasedTable:
    """One table.

    ``rows_deleted`` are the rows that readers saw. ``before`` is what the first search found, as a JSON
    object: after the deletion, before any file was rewritten. ``rewritten`` are the partitions that were
    compacted. ``statistics_removed`` is the number of recorded column statistics in the metastore that had a
    key and were removed. ``search`` is the last search.
    """

    column: str
    key_hashes: tuple[str, ...]
    rows_deleted: int
    before: Mapping[str, Any]
    rewritten: tuple[str, ...]
    search: TableSearch
    statistics_removed: int = 0
    partitions_dropped: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict."""
        search = self.search
        return {
            "table": search.full_name,
            "column": self.column,
            "key_count": len(self.key_hashes),
            "key_hashes": list(self.key_hashes),
            "locations": [str(root) for root in search.roots],
            "rows_deleted": self.rows_deleted,
            "partition_count": len(search.partitions),
            "partitions_rewritten": list(self.rewritten),
            "partitions_dropped": self.partitions_dropped,
            "column_statistics_removed": self.statistics_removed,
            "before": dict(self.before),
            "after": {
                "file_count": len(search.files),
                "byte_count": search.byte_count,
                "found": [_found(search, file) for file in search.left],
                "upload_count": search.upload_count,
                "files": [_file(search, file) for file in search.files],
            },
        }


def found_before(search: TableSearch) -> dict[str, Any]:
    """Return what a search found, as a JSON-serialisable dict without the files that hold no key."""
    return {
        "file_count": len(search.files),
        "byte_count": search.byte_count,
        "found": [_found(search, file) for file in search.left],
    }


def _found(search: TableSearch, file: FoundFile) -> dict[str, Any]:
    searched = file.searched
    kind = "staged" if file.staged_by is not None else "hidden" if file.is_hidden else "table"
    return {
        "file": search.shown(file.location),
        "sha256": searched.checksum,
        "place": kind if file.partition is not None or kind != "table" else "unknown partition",
        "row_count": searched.row_count,
        "rows_with_keys": searched.found_rows,
        "statistics_with_keys": searched.found_in_statistics,
        "not_searched_because": searched.reason,
    }


def _file(search: TableSearch, file: FoundFile) -> dict[str, Any]:
    return {
        "file": search.shown(file.location),
        "byte_count": file.searched.entry.size,
        "sha256": file.searched.checksum,
        "row_count": file.searched.row_count,
    }


@dataclass(frozen=True)
class ErasureReport:
    """The result of ``erase``.

    Attributes:
        name: the erasure's name in the journal.
        state: ``erased``, ``unfinished`` or ``dry run``.
        server: the release line of the server.
        salt: the salt of the hashes.
        began_at: when it began, in UTC.
        invisible_at: when the deletion was committed. None in a dry run.
        gone_at: when the first search found nothing. None if none did.
        ended_at: when the report was made.
        tables: the tables.
        obstacles: what is in the way; empty if the keys are erased.
        not_looked_at: copies that this search cannot see, with what is known about them.
        signature: algorithm and value, if the report is signed.
    """

    name: str
    state: str
    server: str
    salt: bytes
    began_at: datetime
    invisible_at: datetime | None
    gone_at: datetime | None
    ended_at: datetime
    tables: tuple[ErasedTable, ...]
    obstacles: tuple[Obstacle, ...] = ()
    not_looked_at: tuple[Mapping[str, str], ...] = ()
    signature: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_erased(self) -> bool:
        """True if no byte below the tables' locations holds a key any more."""
        return self.state == "erased"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-serialisable dict."""
        found: dict[str, Any] = {
            "report": "erasure",
            "version": 1,
            "program": f"hive-mutation-api {__version__}",
            "name": self.name,
            "state": self.state,
            "server": self.server,
            "began_at": _moment(self.began_at),
            "invisible_at": _moment(self.invisible_at),
            "gone_at": _moment(self.gone_at),
            "ended_at": _moment(self.ended_at),
            "key_hash": "HMAC-SHA256 of the key's text in UTF-8, with the salt as its key",
            "salt": self.salt.hex(),
            "tables": [each.to_dict() for each in self.tables],
            "obstacles": [each.to_dict() for each in self.obstacles],
            "not_looked_at": [dict(each) for each in self.not_looked_at],
        }
        if self.signature:
            found["signature"] = dict(self.signature)
        return found

    def __str__(self) -> str:
        """Return a line for each table, what is in the way, and the result."""
        lines = [_table_line(each) for each in self.tables]
        lines += [f"in the way: {each}" for each in self.obstacles]
        lines += [f"not looked at: {each['place']}: {each['found']}" for each in self.not_looked_at]
        lines.append(f"erasure {self.name}: {_VERDICTS[self.state]}")
        return "\n".join(lines)


def _table_line(each: ErasedTable) -> str:
    search = each.search
    rows = sum(found["rows_with_keys"] for found in each.before["found"])
    return (
        f"{search.full_name}: {len(each.key_hashes):,} keys, {each.rows_deleted:,} visible rows deleted; "
        f"{rows:,} rows in {len(each.before['found']):,} of {each.before['file_count']:,} files before, "
        f"{search.found_rows:,} in {len(search.left):,} of {len(search.files):,} after; "
        f"{len(each.rewritten):,} of {len(search.partitions):,} partitions rewritten"
    )


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")


def _signed_bytes(report: Mapping[str, Any]) -> bytes:
    unsigned = {name: value for name, value in report.items() if name != "signature"}
    return json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def signed(report: Mapping[str, Any], key: bytes) -> dict[str, str]:
    """Return the signature of a report: ``{"algorithm": …, "value": hexadecimal}``.

    Args:
        report: the report as a dict.
        key: the content of the key file.

    Raises:
        ConfigurationError: If the key is too short, not of Ed25519, or needs a package that is not installed.
    """
    message = _signed_bytes(report)
    if key.startswith(_PEM):
        private = _ed25519(key, "load_pem_private_key", "Ed25519PrivateKey", password=None)
        return {"algorithm": _ED25519, "value": private.sign(message).hex()}
    _check_length(key)
    return {"algorithm": _HMAC, "value": hmac.new(key, message, hashlib.sha256).hexdigest()}


def is_erasure_signed_by(report: Mapping[str, Any], key: bytes) -> bool:
    """Return True if the signature of a report is that of a key.

    Args:
        report: the report as it was read from its JSON file.
        key: the content of the key file: the secret of HMAC, or the public key of Ed25519 in PEM.

    Raises:
        ConfigurationError: See :func:`signed`.
    """
    signature = report.get("signature") or {}
    try:
        value = bytes.fromhex(str(signature.get("value", "")))
    except ValueError:
        return False
    if not key.startswith(_PEM):
        _check_length(key)
        expected = hmac.new(key, _signed_bytes(report), hashlib.sha256).digest()
        return signature.get("algorithm") == _HMAC and hmac.compare_digest(value, expected)
    if signature.get("algorithm") != _ED25519:
        return False
    public = _ed25519(key, "load_pem_public_key", "Ed25519PublicKey")
    invalid = importlib.import_module("cryptography.exceptions").InvalidSignature
    try:
        public.verify(value, _signed_bytes(report))
    except invalid:
        return False
    return True


def _check_length(key: bytes) -> None:
    if len(key) < _LEAST_KEY_BYTES:
        raise ConfigurationError(
            f"signature_key: the key has {len(key)} bytes, expected at least {_LEAST_KEY_BYTES}. Make one: "
            "head -c 32 /dev/urandom > signature.key"
        )


def _ed25519(key: bytes, loader: str, class_name: str, **options: Sequence[object] | None) -> Any:
    """Return a key of Ed25519 from PEM."""
    try:
        serialization = importlib.import_module("cryptography.hazmat.primitives.serialization")
        ed25519 = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError as error:
        raise ConfigurationError(
            "signature_key: a key in PEM requires the package cryptography: pip install "
            f"hive-mutation-api[pkcs12], or use another file as the secret of HMAC ({error})"
        ) from error
    try:
        found = getattr(serialization, loader)(key, **options)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"signature_key: it is not a key without a password: {error}") from error
    if not isinstance(found, getattr(ed25519, class_name)):
        raise ConfigurationError(
            "signature_key: expected a key of Ed25519: openssl genpkey -algorithm ed25519"
        )
    return found
