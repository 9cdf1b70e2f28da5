"""A secret in any part of a URL is refused, and no refusal shows it."""

from __future__ import annotations

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.url_secrets import check_no_secret
from mutation_api.update.rdbms.connect import checked_url, connect_database

SECRET = [
    "postgresql://me:s3cret@host/db",
    "postgres://me:s3cret@host/db",
    "mysql://me:s3/c?r#et@host/db",
    "mysql://me:@s3cret@host/db",
    "mysql://:s3cret@host/db",
    "mysql+pymysql://me:s3cret@host/db",
    "postgresql://me@host/db?password=s3cret",
    "postgresql://me@host/db?PASSWORD=s3cret",
    "postgresql://me@host/db?sslmode=require&p%61ssword=s3cret",
    "postgresql://me@host/db?sslpassword=s3cret",
    "mysql://me@host/db?passwd=s3cret",
    "mysql://me@host/db?charset=utf8mb4&ssl_key_password=s3cret",
    "mysql://me@host/db?pwd=s3cret",
    "mysql://me@host/db#password=s3cret",
    "mysql://me@host/db?access_token=s3cret",
    "mysql://me@host/db?secret_key=s3cret",
    "sqlite:///db?pass=s3cret",
    "mysql:/me:s3cret@host/db",
    "mysql:me:s3cret@host/db",
    "me:s3cret@host/db",
    "host=h user=me password=s3cret",
    " postgresql://me:s3cret@host/db",
    "s3cret",
]


@pytest.mark.parametrize("text", SECRET)
def test_a_secret_is_refused_and_not_shown(text: str) -> None:
    """Also in texts that are no URL of a source, or of an unknown kind."""
    for refuse in (checked_url, connect_database):
        with pytest.raises(ConfigurationError, match=r"must not contain a password|is not a URL") as caught:
            refuse(text)
        assert "s3c" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me@host:5432/db?sslmode=verify-full&sslrootcert=/ca.pem&passfile=/etc/pgpass",
        "mysql://me@host:3306/db?charset=utf8mb4&ssl_key=/key.pem",
        "mysql://host/password",
        "https://registry.example:8081/x",
        "postgresql://host/db?user=a%40b",
    ],
)
def test_others_pass(text: str) -> None:
    """Names of files and hosts are no secrets."""
    check_no_secret(text, what="it", because="")
