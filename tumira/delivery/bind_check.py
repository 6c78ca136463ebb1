"""A trial bind to a carrier: bind, enquire_link, unbind. Nothing is sent."""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tumira.core.errors import OperatorError
from tumira.delivery.carrier_url import CarrierSettings
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import DEFAULT_TIMEOUTS, SmppTimeouts
from tumira.delivery.smpp.pdu import Command
from tumira.delivery.smpp.session import BindRefusedError, SessionListener, connect

_ADVICE: Final[Mapping[int, str]] = {
    CommandStatus.RINVPASWD: "the password is wrong",
    CommandStatus.RINVSYSID: "it does not know this user",
    CommandStatus.RBINDFAIL: "it does not let this user in; the user or the password may be wrong",
    CommandStatus.RALYBND: (
        "it takes no further bind beside those that are open; ask it how many you may have"
    ),
}


@dataclass(frozen=True, slots=True)
class BindCheck:
    """A successful trial bind."""

    system_id: str
    bind_ms: float
    enquire_link_ms: float


async def check_bind(settings: CarrierSettings, timing: SmppTimeouts = DEFAULT_TIMEOUTS) -> BindCheck:
    """Bind to a carrier from this process; OperatorError says in one line why that failed."""
    command = Command.BIND_TRANSMITTER if settings.bind_mode == "pair" else Command.BIND_TRANSCEIVER
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        # A receipt that comes meanwhile is not acknowledged, so the carrier delivers it again, to a worker.
        session = await connect(settings, command, SessionListener(), timing=timing)
        bind_s = clock() - began
        try:
            enquire_s = await session.enquire()
        finally:
            await session.close(0)
    except BindRefusedError as error:
        advice = _ADVICE.get(error.status, "ask the carrier what that means")
        raise OperatorError(f"{_place(settings)} refuses the bind with {error.words}: {advice}.") from None
    except OSError as error:
        raise OperatorError(_explain(error, settings)) from None
    return BindCheck(session.peer_system_id, round(bind_s * 1000, 1), round(enquire_s * 1000, 1))


def _explain(error: OSError, settings: CarrierSettings) -> str:
    place = _place(settings)
    match error:
        case ssl.SSLCertVerificationError():
            return f"The certificate of {place} is not trusted: {error.verify_message}."
        case ssl.SSLError():
            return (
                f"{place} does not speak our TLS ({error.reason}); without TLS, write smpp:// and no tls=1."
            )
        case socket.gaierror():
            return f"The host {settings.host} is not known ({error.strerror}); check the URL."
        case ConnectionRefusedError():
            return f"Nobody listens on {place}; check host and port, and that the carrier is up."
        case TimeoutError():
            return f"{place} did not answer in time; check host and port, and that it expects this address."
        case _:
            reason = " ".join(str(error).split()) or type(error).__name__
            hint = (
                "does not want TLS, write smpp:// and no tls=1"
                if settings.tls
                else "wants TLS, write smpps://"
            )
            return f"The line to {place} broke ({reason}); where the carrier {hint}."


def _place(settings: CarrierSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{settings.port}"
