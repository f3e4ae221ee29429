"""The page on the loopback address: a token that is good once, a cookie, our host, and no page of another site."""

import re

import pytest

from tests.support.canned_console import local_console, log_in

DEVICE = "/api/v1/devices/gpu-0-0"


async def test_the_token_is_taken_for_a_cookie_that_scripts_and_other_sites_cannot_use() -> None:
    async with local_console() as (console, token):
        assert len(token) == 43  # 256 bits
        heard = await console.ask("/api/v1/login", Authorization=f"Bearer {token}")
        assert (heard.status, heard.body) == (204, b"")
        name, _, attributes = heard.headers["Set-Cookie"].partition("=")
        assert name == f"gpu-console-{console.port}"
        assert attributes.split("; ")[1:] == ["HttpOnly", "SameSite=Strict", "Path=/"]
        assert token not in heard.headers["Set-Cookie"]
        cookie = heard.headers["Set-Cookie"].partition(";")[0]
        assert (await console.ask(DEVICE, Cookie=cookie)).status == 200


async def test_a_second_login_with_the_same_token_is_refused() -> None:
    async with local_console() as (console, token):
        await log_in(console, token)
        heard = await console.ask("/api/v1/login", Authorization=f"Bearer {token}", Cookie="")
        assert heard.status == 401
        assert "used before" in heard.error
        assert (await console.ask(DEVICE)).status == 200


async def test_the_address_is_shown_with_its_token_until_that_is_used() -> None:
    async with local_console() as (console, token):
        assert console.login.address == f"{console.url}/#token={token}"  # type: ignore[attr-defined]
        await log_in(console, token)
        assert console.login.address == f"{console.url}/"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "path", [DEVICE, "/api/v1/stream", "/api/v1/pods/ml-team/big", "/api/v1/what-if?pool=a&units=1"]
)
@pytest.mark.parametrize(
    "cookie", ["", "gpu-console-1=x", "gpu-console-PORT=", "gpu-console-PORT=x"]
)
async def test_nothing_is_shown_without_the_cookie(path: str, cookie: str) -> None:
    async with local_console() as (console, token):
        sent = cookie.replace("PORT", str(console.port))
        heard = await console.ask(path, Cookie=sent, Authorization=f"Bearer {token}")
        assert heard.status == 401
        assert heard.headers["WWW-Authenticate"] == "Console-Address"
        assert "open the address that `kubectl gpu console` printed" in heard.error
        assert console.data.asked == []


async def test_guesses_are_rate_limited_and_the_token_is_good_all_the_same() -> None:
    async with local_console() as (console, token):
        statuses = [
            (await console.ask("/api/v1/login", Authorization=f"Bearer {number}")).status
            for number in range(20)
        ]
        assert statuses[:5] == [401] * 5
        assert set(statuses[5:]) == {429}
        refused = await console.ask("/api/v1/login", Authorization=f"Bearer {token}")
        assert (refused.status, refused.headers["Retry-After"]) == (429, "2")
        console.clock.offset_s = 60.0  # type: ignore[attr-defined]
        await log_in(console, token)


@pytest.mark.parametrize("header", ["", "Basic dXNlcjpwYXNz", "Bearer", "Bearer a b"])
async def test_what_is_no_token_is_no_guess(header: str) -> None:
    async with local_console() as (console, token):
        for _ in range(10):
            heard = await console.ask("/api/v1/login", Authorization=header)
            assert heard.status == 401
        await log_in(console, token)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "localhost", "localhost.:PORT",
     "127.0.0.2:PORT", "[::1]:PORT", "127.0.0.1:PORT.evil.example"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/console.js", "/api/v1/login", DEVICE, "/api/v1/stream"])
async def test_a_foreign_host_is_refused(host: str, path: str) -> None:
    """A name of another site that leads to 127.0.0.1 makes a browser send its cookies there, but not this name."""
    async with local_console() as (console, token):
        await log_in(console, token)
        heard = await console.ask(path, Host=host.replace("PORT", str(console.port)))
        assert heard.status == 421
        assert heard.error.startswith("this is http://127.0.0.1:")
        assert console.data.asked == []


async def test_localhost_is_our_host_too() -> None:
    async with local_console() as (console, token):
        await log_in(console, token)
        heard = await console.ask(DEVICE, Host=f"LocalHost:{console.port}")
        assert heard.status == 200


OTHER_SITES = [
    {"Origin": "https://evil.example"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://localhost:PORT"},
    {"Origin": "null"},
    {"Origin": "file://127.0.0.1:PORT"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Origin": "http://127.0.0.1:PORT", "Sec_Fetch_Site": "cross-site"},
]


@pytest.mark.parametrize("headers", OTHER_SITES, ids=str)
@pytest.mark.parametrize("path", ["/api/v1/login", DEVICE, "/api/v1/stream"])
async def test_a_page_of_another_site_is_refused(headers: dict[str, str], path: str) -> None:
    async with local_console() as (console, token):
        await log_in(console, token)
        sent = {name: item.replace("PORT", str(console.port)) for name, item in headers.items()}
        heard = await console.ask(path, **sent)
        assert heard.status == 403
        assert "of another site" in heard.error
        assert console.data.asked == []


async def test_our_own_page_and_a_typed_address_are_answered() -> None:
    async with local_console() as (console, token):
        await log_in(console, token)
        for headers in (
            {"Origin": console.url, "Sec_Fetch_Site": "same-origin"},
            {"Sec_Fetch_Site": "none"},
        ):
            assert (await console.ask(DEVICE, **headers)).status == 200
        # A link to the page, as in a chat, is followed: it has no data.
        assert (await console.ask("/", Sec_Fetch_Site="cross-site")).status == 200


async def test_probes_are_the_cluster_s() -> None:
    async with local_console() as (console, token):
        await log_in(console, token)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await console.ask(path)).status == 404


async def test_two_consoles_of_one_browser_leave_each_other_alone() -> None:
    async with local_console() as (first, token), local_console() as (second, other):
        await log_in(first, token)
        await log_in(second, other)
        both = f"{first.headers['Cookie']}; {second.headers['Cookie']}"
        for console in (first, second):
            assert (await console.ask(DEVICE, Cookie=both)).status == 200
        swapped = re.sub(r"\d+=", f"{second.port}=", first.headers["Cookie"])
        assert (await second.ask(DEVICE, Cookie=swapped)).status == 401


async def test_the_namespace_is_that_of_the_process() -> None:
    async with local_console() as (console, token):
        await log_in(console, token)
        async with console.stream("?namespace=other"):
            ((viewer, visibility),) = console.data.asked
        assert not viewer.can_choose_namespace  # type: ignore[attr-defined]
        assert visibility.namespaces is None
