"""Reaching an SGLang server: its address, what a client of it needs, and what it says about itself."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from laps_sd.errors import InputError, WorkError

if TYPE_CHECKING:
    import httpx


def address_of(url: str) -> "httpx.URL":
    """Return the address of a server.

    Raises
    ------
    InputError
        It is none.
    """
    import httpx

    try:
        address = httpx.URL(url)
        if address.scheme not in ("http", "https") or not address.host or not 0 < (address.port or 80) < 65536:
            raise httpx.InvalidURL("no http address")
    except httpx.InvalidURL:
        raise InputError(f"{url!r} is no address of a server; expected something like http://127.0.0.1:30000") from None
    return address


def is_here(address: "httpx.URL") -> bool:
    """Whether the address is this machine's: a proxy of the environment must not see such requests."""
    return address.host in ("127.0.0.1", "localhost", "::1")


def access(address: "httpx.URL", api_key: str | None) -> dict[str, Any]:
    """What every httpx call to that server takes: the key as bearer token, and a proxy only if it is elsewhere."""
    return {
        "headers": {"Authorization": f"Bearer {api_key}"} if api_key else None,
        "trust_env": not is_here(address),
    }


def server_info(url: str, api_key: str | None = None, *, needs: Sequence[str] = ("model_path",)) -> Mapping[str, Any]:
    """Ask a server for ``/server_info``.

    Parameters
    ----------
    url : str
        Base address.
    api_key : str, optional
        Sent as bearer token.
    needs : sequence of str
        Keys whose values must be texts: by them an SGLang server is known.

    Raises
    ------
    InputError
        ``url`` is no address.
    WorkError
        Nothing answers, it wants a key, or what answers is no SGLang server.
    """
    import httpx

    address = address_of(url)
    try:
        answer = httpx.get(f"{str(address).rstrip('/')}/server_info", timeout=60, **access(address, api_key))
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
        raise WorkError(f"no server answers at {url} ({why}); start one or correct the address") from None
    if answer.status_code in (401, 403):
        raise WorkError(f"the server at {url} wants its API key; give it with --api-key")
    try:
        info = answer.json()
    except ValueError:
        info = None
    if not isinstance(info, Mapping) or not all(isinstance(info.get(key), str) for key in needs):
        raise WorkError(f"what answers at {url} is no SGLang server (HTTP {answer.status_code}); correct the address")
    return info
