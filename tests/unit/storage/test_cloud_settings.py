"""GcsSettings and AzureSettings: Hadoop's properties, refused settings, and texts without secrets."""

from __future__ import annotations

import errno

import pytest

from mutation_api.storage import azure_settings, gcs_storage
from mutation_api.storage.azure_settings import AzureSettings
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.gcs_storage import GcsSettings
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location

AUTHORITY = "tables@acct.dfs.core.windows.net"
OAUTH = "fs.azure.account.oauth2"
TOKENS = "org.apache.hadoop.fs.azurebfs.oauth2"
SECRET = "c2VjcmV0"


def azure(**properties: str) -> AzureSettings:
    """Of properties whose names have two underscores for each dot."""
    return AzureSettings.of_authority(AUTHORITY, HadoopSettings(_named(properties)))


def gcs(**properties: str) -> GcsSettings:
    return GcsSettings.of_bucket("b", HadoopSettings(_named(properties)))


def _named(properties: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in properties.items()}


@pytest.mark.parametrize(
    ("properties", "auth"),
    [
        ({}, gcs_storage.Auth.DEFAULT),
        ({"fs.gs.auth.type": "application_default"}, gcs_storage.Auth.DEFAULT),
        ({"fs.gs.auth.type": "COMPUTE_ENGINE"}, gcs_storage.Auth.MACHINE),
        ({"fs.gs.auth.type": "UNAUTHENTICATED"}, gcs_storage.Auth.NOBODY),
        ({"google.cloud.auth.null.enable": "true"}, gcs_storage.Auth.NOBODY),
        ({"google.cloud.auth.service.account.json.keyfile": "/k"}, gcs_storage.Auth.KEY_FILE),
        (
            {
                "google.cloud.auth.service.account.enable": "false",
                "google.cloud.auth.service.account.json.keyfile": "/k",
            },
            gcs_storage.Auth.DEFAULT,
        ),
    ],
)
def test_who_provides_credentials_for_google(properties: dict[str, str], auth: gcs_storage.Auth) -> None:
    """The newer names win; without a setting Google's clients find the credentials."""
    assert GcsSettings.of_bucket("b", HadoopSettings(properties)).auth is auth


def test_a_key_file_of_google() -> None:
    """Both spellings, and as a location."""
    for name in ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile"):
        found = GcsSettings.of_bucket("b", HadoopSettings({name: "file:///etc/key.json"}))
        assert found.credentials_file == "/etc/key.json"


def test_who_pays() -> None:
    """The project that is named, for the buckets that are named."""
    of_all = {"fs__gs__requester__pays__mode": "ENABLED", "fs__gs__requester__pays__project__id": "p"}
    assert gcs(**of_all).payer == "p"
    of_some = {
        **of_all,
        "fs__gs__requester__pays__mode": "CUSTOM",
        "fs__gs__requester__pays__buckets": "x, b",
    }
    assert gcs(**of_some).payer == "p"
    assert gcs(**{**of_some, "fs__gs__requester__pays__buckets": "x"}).payer is None
    assert gcs().payer is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"fs__gs__auth__type": "USER_CREDENTIALS"},
        {"fs__gs__auth__type": "SERVICE_ACCOUNT_JSON_KEYFILE"},
        {"fs__gs__encryption__key": SECRET},
        {"fs__gs__auth__service__account__private__key": SECRET},
        {"fs__gs__auth__impersonation__service__account": "other"},
        {"fs__gs__requester__pays__mode": "AUTO"},
        {"fs__gs__requester__pays__mode": "ENABLED"},
    ],
)
def test_what_this_client_of_google_cannot_do_is_refused(wrong: dict[str, str]) -> None:
    """Otherwise another identity would be used, or data would be unencrypted. The error shows no secret."""
    with pytest.raises(OSError, match=r"fs\.gs\.") as caught:
        gcs(**wrong)
    assert caught.value.errno == errno.EINVAL
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "suffix",
    ["", "__acct", "__acct__dfs__core__windows__net", "__tables__acct__dfs__core__windows__net"],
)
def test_a_key_of_azure(suffix: str) -> None:
    """Of all accounts, of this one by either of its names, or of the container."""
    found = azure(**{f"fs__azure__account__key{suffix}": SECRET})
    assert (found.auth, found.secret) == (azure_settings.Auth.KEY, SECRET)
    assert (found.container, found.account) == ("tables", "acct")
    assert found.endpoint == "https://acct.blob.core.windows.net"


def test_an_accounts_own_property_wins() -> None:
    """As in Hadoop."""
    found = azure(fs__azure__account__key="all", fs__azure__account__key__acct__dfs__core__windows__net="own")
    assert found.secret == "own"


def test_a_token_of_azure() -> None:
    """A SAS token alone is enough."""
    found = azure(fs__azure__sas__fixed__token__acct=SECRET)
    assert (found.auth, found.secret) == (azure_settings.Auth.SAS, SECRET)


def test_nothing_said_is_what_azures_clients_find() -> None:
    """And another cloud has its own host."""
    assert azure().auth is azure_settings.Auth.DEFAULT
    found = AzureSettings.of_authority("c@a.dfs.core.chinacloudapi.cn", HadoopSettings({}))
    assert found.endpoint == "https://a.blob.core.chinacloudapi.cn"


def test_a_client_of_azure() -> None:
    """Its tenant is in the address where it logs in."""
    properties = {
        "fs.azure.account.auth.type": "OAuth",
        "fs.azure.account.oauth.provider.type": f"{TOKENS}.ClientCredsTokenProvider",
        f"{OAUTH}.client.id": "id",
        f"{OAUTH}.client.secret": SECRET,
        f"{OAUTH}.client.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token",
    }
    found = AzureSettings.of_authority(AUTHORITY, HadoopSettings(properties))
    assert (found.auth, found.client_id, found.secret) == (azure_settings.Auth.CLIENT, "id", SECRET)
    assert (found.authority, found.tenant) == ("https://login.microsoftonline.com", "tenant")
    for name in properties:
        if name != "fs.azure.account.auth.type":
            with pytest.raises(OSError, match=name.rpartition(".")[2]) as caught:
                AzureSettings.of_authority(AUTHORITY, HadoopSettings({**properties, name: ""}))
            assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    "wrong",
    [
        {"fs__azure__account__auth__type": "Custom"},
        {"fs__azure__account__auth__type": "SharedKey"},
        {"fs__azure__account__auth__type": "SAS"},
        {"fs__azure__account__auth__type": "OAuth"},
        {
            "fs__azure__account__auth__type": "OAuth",
            "fs__azure__account__oauth__provider__type": f"{TOKENS}.UserPasswordTokenProvider",
        },
    ],
)
def test_what_this_client_of_azure_cannot_do_is_refused(wrong: dict[str, str]) -> None:
    """Otherwise another identity would be used."""
    with pytest.raises(OSError, match=r"fs\.azure\.") as caught:
        azure(**wrong)
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    "text", ["abfss://tables/w", "abfss://acct.dfs.core.windows.net/w", "abfs://c@acct/w"]
)
def test_a_location_names_container_and_account(text: str) -> None:
    """It is refused before anything happens."""
    configure_storage(HadoopSettings({}))
    try:
        with pytest.raises(OSError, match="container@account") as caught:
            storage_at(Location.parse(text))
        assert caught.value.errno == errno.EINVAL
    finally:
        configure_storage(None)


def test_no_text_shows_a_secret() -> None:
    """Of the settings."""
    found = azure(fs__azure__account__key=SECRET)
    assert SECRET not in f"{found!r} {found}"
