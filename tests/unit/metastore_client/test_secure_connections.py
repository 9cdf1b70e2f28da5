"""TLS, HTTP and SASL, against small servers in this process."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from thrift.transport.TTransport import TTransportException

from metastore_client.delegation_token import DelegationToken
from metastore_client.errors import (
    InvalidConfigurationError,
    MetastoreUnavailableError,
    SecureConnectionError,
)
from metastore_client.hive_site import Address, MetastoreConfig
from metastore_client.transport.connection import ConnectionPool, open_socket
from metastore_client.transport.sasl import DigestMd5
from metastore_client.transport.security import (
    ANY_PROTECTION,
    HttpConfig,
    PlainLogin,
    Protection,
    TlsConfig,
    TokenLogin,
)

TLS_FILES = Path(__file__).parents[2] / "golden" / "tls"
TRUSTING = TlsConfig(TLS_FILES / "ca.pem")
START, OK, BAD, COMPLETE = 1, 2, 3, 5


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Serve one connection after the other in a thread; errors of broken connections are ignored there."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with contextlib.suppress(OSError):
            while True:
                handle = listener.accept()[0]
                with contextlib.suppress(OSError), handle:
                    serve(handle)

    thread = threading.Thread(target=run)
    thread.start()
    yield Address("localhost", listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60)
    assert not thread.is_alive()


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS_FILES / "server.pem", TLS_FILES / "server.key")
    return context


def echo_in_tls(handle: socket.socket) -> None:
    """Give back what comes, and hang up at ``bye``."""
    with server_context().wrap_socket(handle, server_side=True) as line:
        while (data := line.recv(100)) not in (b"", b"bye"):
            line.sendall(data)


def config_for(address: Address, **more: Any) -> MetastoreConfig:
    return MetastoreConfig((address,), connect_timeout_seconds=60, socket_timeout_seconds=60, **more)


def test_tls_carries_bytes_and_notices_the_end() -> None:
    """Thrift's own socket takes a closed TLS connection for an open one."""
    with serving(echo_in_tls) as address:
        line = open_socket(address, config_for(address, tls=TRUSTING))
        line.write(b"hello")
        assert line.readAll(5) == b"hello"
        assert line.isOpen()
        line.write(b"bye")
        assert not _until_closed(line).isOpen()
        assert not line.isOpen()


def _until_closed(line: Any) -> Any:
    with contextlib.suppress(TTransportException):
        line.read(1)
    return line


@pytest.mark.parametrize(
    ("tls", "host", "said"),
    [
        (TlsConfig(TLS_FILES / "other_ca.pem"), "localhost", r"other_ca\.pem"),
        (TlsConfig(), "localhost", "those of this machine"),
        (TRUSTING, "localhost.localdomain", "not valid for"),
    ],
)
def test_a_server_that_cannot_be_trusted_is_refused_at_once(
    tls: TlsConfig, host: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no second round, since the error would be the same; the error names the cause."""
    real = socket.create_connection
    with serving(echo_in_tls) as address:
        named = Address(host, address.port)
        monkeypatch.setattr(socket, "create_connection", lambda to, *rest: real(("127.0.0.1", to[1]), *rest))
        pool = ConnectionPool(config_for(named, tls=tls), lambda _: None, sleep=_never)
        with pytest.raises(SecureConnectionError, match=said):
            pool.get()
        unchecked = TlsConfig(TLS_FILES / "ca.pem", verifies_host=False)
        open_socket(named, config_for(named, tls=unchecked)).close()


def _never(_: float) -> None:
    raise AssertionError("it waits for a second round")


def test_a_server_that_trusts_its_own_certificate_alone() -> None:
    """As with Java, a certificate in the trust store needs no authority above it."""
    with serving(echo_in_tls) as address:
        open_socket(address, config_for(address, tls=TlsConfig(TLS_FILES / "server.pem"))).close()


def test_a_server_without_tls_is_told_from_a_dead_one() -> None:
    """The error asks whether it speaks TLS."""
    with (
        serving(lambda handle: handle.sendall(b"not TLS at all")) as address,
        pytest.raises(SecureConnectionError, match="does the server speak TLS"),
    ):
        open_socket(address, config_for(address, tls=TRUSTING))


class Post(http.server.BaseHTTPRequestHandler):
    """Gives back the body turned round; the path says what goes wrong."""

    protocol_version = "HTTP/1.1"
    seen: list[dict[str, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        code = {"/hms": 200, "/who": 401, "/gone": 404}.get(self.path, 500)
        answer = body[::-1] if code == 200 else b"<html><title>Error: &lt;why&gt;</title></html>"
        self.send_response(code)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(params=[False, True], ids=["http", "https"])
def post(request: pytest.FixtureRequest) -> Iterator[tuple[type[Post], Callable[..., MetastoreConfig]]]:
    """A server, and what makes a configuration for it."""
    handler = type("Handler", (Post,), {"seen": [], "timeout": 60})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = False
    if request.param:
        server.socket = server_context().wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    address = Address("localhost", server.server_address[1])

    def config(**values: Any) -> MetastoreConfig:
        tls = TRUSTING if request.param else None
        return config_for(address, tls=tls, http=HttpConfig(**values), user="me")

    yield handler, config
    server.shutdown()
    server.server_close()
    thread.join()


def test_http_sends_calls_on_one_connection(
    post: tuple[type[Post], Callable[..., MetastoreConfig]],
) -> None:
    """With the user's name, or a token instead of it, and more headers."""
    handler, make = post
    for config in (make(path="hms", headers=(("a", "b"),)), make(path="/hms", bearer_token="t.t.t")):
        line = open_socket(config.addresses[0], config)
        for text in (b"abc", b"defg"):
            line.write(text)
            line.flush()
            assert line.readAll(len(text)) == text[::-1]
            assert line.isOpen()
        with pytest.raises(TTransportException):
            line.read(1)
        line.close()
        assert not line.isOpen()
    named, _, with_token, _ = handler.seen
    assert (named["x-actor-username"], named["a"], named["content-type"]) == (
        "me",
        "b",
        "application/x-thrift",
    )
    assert "authorization" not in named
    assert with_token["authorization"] == "Bearer t.t.t"
    assert "x-actor-username" not in with_token


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("who", SecureConnectionError, "refuses the login; HTTP: POST /who was answered 401 .*Error: <why>"),
        ("gone", MetastoreUnavailableError, "no metastore at this path"),
        ("broken", TTransportException, "500"),
    ],
)
def test_an_error_page_is_no_answer(
    post: tuple[type[Post], Callable[..., MetastoreConfig]], path: str, error: type[Exception], said: str
) -> None:
    """Refusals are typed; after a 500 the outcome is unknown."""
    config = post[1](path=path)
    line = open_socket(config.addresses[0], config)
    line.write(b"x")
    with pytest.raises(error, match=said):
        line.flush()
    assert not line.isOpen()


@pytest.mark.parametrize("bad", [("a", "b\r\nc: d"), ("a b", "c"), ("a", "ü")])
def test_a_header_that_cannot_be_sent(
    post: tuple[type[Post], Callable[..., MetastoreConfig]], bad: tuple[str, str]
) -> None:
    """It is refused before anything is sent."""
    config = post[1](headers=(bad,))
    with pytest.raises(InvalidConfigurationError, match="header"):
        open_socket(config.addresses[0], config)
    assert not post[0].seen


def receive(handle: socket.socket) -> tuple[int, bytes]:
    code, length = struct.unpack(">BI", _exactly(handle, 5))
    return code, _exactly(handle, length)


def _exactly(handle: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = handle.recv(count - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data


def send(handle: socket.socket, code: int, body: bytes) -> None:
    handle.sendall(struct.pack(">BI", code, len(body)) + body)


def plain_server(handle: socket.socket) -> None:
    assert receive(handle) == (START, b"PLAIN")
    code, body = receive(handle)
    if (code, body) != (COMPLETE, "\0etl\0sécret".encode()):
        return send(handle, BAD, b"unknown user")
    send(handle, COMPLETE, b"")
    frame = _exactly(handle, struct.unpack(">I", _exactly(handle, 4))[0])
    handle.sendall(struct.pack(">I", 2) + frame[:2] + struct.pack(">I", 0) + struct.pack(">I", 1) + b"!")
    return None


def test_a_password_login() -> None:
    """Then frames, of which one may be empty; a wrong password is what the server says it is."""
    with serving(plain_server) as address:
        line = open_socket(address, config_for(address, login=PlainLogin("etl", "sécret")))
        line.write(b"he")
        line.write(b"llo")
        line.flush()
        assert (line.read(100), line.read(100)) == (b"he", b"!")
        line.close()
        with pytest.raises(SecureConnectionError, match="SASL PLAIN: the server refuses the login: unknown"):
            open_socket(address, config_for(address, login=PlainLogin("etl", "no")))


@pytest.mark.parametrize("answer", [b"", b"\x09\0\0\0\0", b"HTTP/1.1 400 Bad Request"])
def test_a_server_that_does_not_speak_sasl(answer: bytes) -> None:
    """It hangs up or says something else."""

    def serve(handle: socket.socket) -> None:
        receive(handle)
        receive(handle)
        handle.sendall(answer)

    with serving(serve) as address, pytest.raises(SecureConnectionError, match=r"(support|speak) SASL"):
        open_socket(address, config_for(address, login=PlainLogin("a", "b")))


def test_digest_md5_as_in_its_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of RFC 2831, section 4, with its user, address and nonces."""
    monkeypatch.setattr("metastore_client.transport.sasl._TOKEN_DIGEST_URI", "imap/elwood.innosoft.com")
    mechanism = DigestMd5(DelegationToken(b"", b""), ANY_PROTECTION, nonce="OA6MHXh6VqTrRk")
    monkeypatch.setattr(mechanism, "_user", "chris")
    monkeypatch.setattr(mechanism, "_password", "secret")
    challenge = (
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    )
    assert b"response=d388dad90d4bbd760a152321f2143af7," in mechanism.respond(challenge)
    assert not mechanism.is_complete
    with pytest.raises(SecureConnectionError, match="does not know the token"):
        mechanism.respond(b"rspauth=00")
    mechanism.respond(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    assert mechanism.is_complete


def test_digest_md5_signs_what_follows() -> None:
    """Each direction has its own key and a number: no message can be changed, left out or repeated."""
    mechanism = DigestMd5(DelegationToken(b"i", b"p"), Protection.INTEGRITY)
    mechanism.respond(b'realm="default",nonce="n",qop="auth-int,auth"')
    first, second = mechanism.wrap(b"same")[0], mechanism.wrap(b"same")[0]
    assert first[:4] == second[:4] == b"same"
    assert first[4:14] != second[4:14]
    assert (first[14:], second[14:]) == (b"\0\1\0\0\0\0", b"\0\1\0\0\0\1")
    with pytest.raises(SecureConnectionError, match="changed in transit"):
        mechanism.unwrap(first)  # our own signature, sent back


def test_digest_md5_refuses_broken_ciphers() -> None:
    """The error for a server that insists on privacy names the alternatives."""
    for offered, allowed in ((b"auth-conf", ANY_PROTECTION), (b"auth", Protection.INTEGRITY)):
        mechanism = DigestMd5(DelegationToken(b"i", b"p"), allowed)
        with pytest.raises(SecureConnectionError, match="without privacy"):
            mechanism.respond(b'realm="default",nonce="n",qop="' + offered + b'"')


def test_a_login_by_token() -> None:
    """User and password are the token's halves in base64; the server proves that it knows it too."""
    token = DelegationToken(b"\0who", b"\xffsecret")

    def serve(handle: socket.socket) -> None:
        assert receive(handle) == (START, b"DIGEST-MD5")
        assert receive(handle) == (OK, b"")
        send(handle, OK, b'realm="default",nonce="N",qop="auth",charset=utf-8,algorithm=md5-sess')
        said = dict(part.split("=", 1) for part in receive(handle)[1].decode().split(","))
        user, password = (base64.b64encode(each).decode() for each in (token.identifier, token.password))
        assert said["username"] == f'"{user}"'

        def md5(text: bytes) -> bytes:
            return hashlib.md5(text).hexdigest().encode()

        cnonce = said["cnonce"].strip('"').encode()
        secret = hashlib.md5(f"{user}:default:{password}".encode()).digest() + b":N:" + cnonce
        proofs = [
            md5(md5(secret) + b":N:00000001:" + cnonce + b":auth:" + md5(verb + b":null/default"))
            for verb in (b"AUTHENTICATE", b"")
        ]
        if said["response"].encode() != proofs[0]:
            return send(handle, BAD, b"invalid response")
        return send(handle, COMPLETE, b"rspauth=" + proofs[1])

    with serving(serve) as address:
        open_socket(address, config_for(address, login=TokenLogin(token))).close()
        with pytest.raises(SecureConnectionError, match="invalid response"):
            wrong = TokenLogin(DelegationToken(token.identifier, b"guess"))
            open_socket(address, config_for(address, login=wrong))


def test_http_and_sasl_exclude_each_other() -> None:
    """A login by SASL needs bare TCP."""
    with pytest.raises(InvalidConfigurationError, match="SASL"):
        config_for(Address("a", 1), http=HttpConfig(), login=PlainLogin("a", "b"))
