"""A secret in any part of a URL is refused, and no refusal shows it."""

from __future__ import annotations

import pymysql
import pytest

from mutation_api.cdc.mysql.server import MySqlAddress, MySqlServer
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cdc.update.database import checked_url, connect_database
from mutation_api.cdc.update.extract import ExtractOptions
from mutation_api.cdc.update.sources import SourceAccess
from mutation_api.cdc.update.sql_database import SqlDatabase
from mutation_api.errors import ConfigurationError, ConnectionFailedError
from mutation_api.format.printable import check_no_secret

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
    "postgresql://me/s3cret@host/db",
    "postgresql://me@s3cret@host/db",
    "postgresql://me%3As3cret@host/db",
    "postgresql://host:s3cret/db",
    "postgresql://host/me:s3cret",
    "postgresql://host/db?s3cret",
    "postgresql://host/db?s3cret=1",
    "postgresql://host/db?sslmode=require&x=s3cret",
    "postgresql://host/db?options=-csearch_path=s3cret",
    "postgresql://host/db?host=s3cret",
    "postgresql://host/db?sslmode=a&sslmode=s3cret",
    "postgresql://me@host/db#s3cret",
    "postgresql://me@host/db s3cret",
    "postgresql//me:s3cret@host/db",
    "postgresql:///me:s3cret@host/db",
    "mysql://me@host/db?ssl_ca=x;pw=s3cret",
    "mysql://me@host/?s3cret",
    "oracle://me@s3cret/db",
    "sqlite:///db?pwd:s3cret",
    "POSTGRESQL://me:s3cret@host/db",
]


@pytest.mark.parametrize("text", SECRET)
def test_a_secret_is_refused_and_not_shown(text: str) -> None:
    """Also in texts that are no URL of a source, or of an unknown kind."""
    for refuse in (checked_url, connect_database):
        with pytest.raises(
            ConfigurationError, match=r"must not contain a password|not a URL|not allowed|unknown kind"
        ) as caught:
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


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("postgresql://me@host/db", "postgresql+psycopg://me@HOST:5432/db"),
        (
            "mysql://me@host/db?ssl_ca=/ca.pem&connect_timeout=3",
            "mariadb://me@host:3306/db?connect_timeout=3&ssl_ca=/ca.pem",
        ),
        ("postgresql://a%40b@[::1]:5433/a{b}", "postgresql://a%40b@[::1]:5433/a{b}"),
        ("postgresql:///db?host=/run/pg&port=5433", "postgresql:///db?port=5433&host=/run/pg"),
        ("sqlite:////tmp/a b%20@:c.db?timeout=3", "sqlite:////tmp/a b%20@:c.db?timeout=3"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
    ],
)
def test_a_url_is_the_same_from_its_text(text: str, same: str) -> None:
    """However it is spelled; in another place it is another one."""
    url = SourceUrl.of(text)
    assert SourceUrl.of(str(url)) == url
    assert url.is_same(SourceUrl.of(same))
    assert not url.is_same(SourceUrl.of(text.replace("db", "dc").replace("a{b}", "c")))


def test_what_a_url_says_is_what_is_connected_to() -> None:
    """No text is read a second time, by other rules."""
    database = connect_database("postgresql://a%40b@host:1/a%2Fb?sslmode=verify-full", "p@ss:w/rd")
    assert isinstance(database, SqlDatabase)
    url = database.url
    assert (url.username, url.password, url.host, url.port) == ("a@b", "p@ss:w/rd", "host", 1)
    assert (url.database, dict(url.query)) == ("a/b", {"sslmode": "verify-full"})
    assert "p@ss" not in f"{url!r} {database.source_id}"


def test_options_do_not_show_the_password() -> None:
    """Where an object is printed."""
    for shown in (ExtractOptions(password="s3cret"), SourceAccess(password="s3cret")):
        assert "s3cret" not in repr(shown)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me@127.0.0.1:1/db?ssl_ca=/no/such/file",
        "sqlite:////no/such/folder/db?timeout=1",
        "sqlite:///file:/no/such/folder/db?uri=true&mode=ro",
        "postgresql://me@127.0.0.1:1/db?sslmode=guess",
        "postgresql://me@127.0.0.1:1/db?sslrootcert=/no/such/file&sslmode=verify-full",
    ],
)
def test_an_option_that_does_not_work_is_an_error_of_ours(url: str) -> None:
    """Whatever the driver raises."""
    with pytest.raises(ConnectionFailedError, match=f"^source {SourceUrl.of(url).kind}:"):
        connect_database(url, "").describe("t")


def test_a_module_that_the_driver_lacks_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL says it so for accounts of MySQL 8 and later, whose passwords it has to encrypt."""

    def connect(**_: object) -> None:
        raise RuntimeError("'cryptography' package is required")

    monkeypatch.setattr(pymysql, "connect", connect)
    with pytest.raises(ConnectionFailedError, match=r"^source mysql:host/db: 'cryptography' package"):
        connect_database("mysql://me@host/db", "s3cret").describe("t")
    with pytest.raises(ConnectionFailedError, match=r"^source me@host:3306: 'cryptography' package"):
        MySqlServer(MySqlAddress("host", "me", "s3cret")).position()
