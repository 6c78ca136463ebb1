"""A trial bind to a carrier: bind, enquire_link, unbind. Nothing is sent."""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tumira.carriers.url import CarrierSettings
from tumira.core.errors import OperatorError
from tumira.core.translation import _, mark
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import DEFAULT_TIMEOUTS, SmppTimeouts
from tumira.delivery.smpp.pdu import Command
from tumira.delivery.smpp.session import BindRefusedError, SessionListener, connect

_ADVICE: Final[Mapping[int, str]] = {
    CommandStatus.RINVPASWD: mark("The password is wrong."),
    CommandStatus.RINVSYSID: mark("The user is unknown."),
    CommandStatus.RBINDFAIL: mark("The user or password may be wrong."),
    CommandStatus.RALYBND: mark("All allowed binds are in use. Ask the carrier how many you may have."),
}
_ASK: Final = mark("Ask the carrier what this means.")


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
        text = _("{place} refused the bind with {error}.").format(place=_place(settings), error=error.words)
        advice = _(_ADVICE.get(error.status, _ASK))
        raise OperatorError(f"{text} {advice}") from None
    except OSError as error:
        raise OperatorError(_explain(error, settings)) from None
    return BindCheck(session.peer_system_id, round(bind_s * 1000, 1), round(enquire_s * 1000, 1))


def _explain(error: OSError, settings: CarrierSettings) -> str:
    place = _place(settings)
    match error:
        case ssl.SSLCertVerificationError():
            text = _("The certificate of {place} is not trusted: {reason}.")
            return text.format(place=place, reason=error.verify_message)
        case ssl.SSLError():
            text = _("TLS with {place} failed ({reason}). Without TLS, use smpp:// and no tls=1.")
            return text.format(place=place, reason=error.reason)
        case socket.gaierror():
            text = _("The host {host} was not found ({reason}). Check the URL.")
            return text.format(host=settings.host, reason=error.strerror)
        case ConnectionRefusedError():
            text = _("{place} refused the connection. Check the host and port, and that the carrier is up.")
            return text.format(place=place)
        case TimeoutError():
            text = _(
                "{place} did not answer in time. Check the host and port, and that it allows our IP address."
            )
            return text.format(place=place)
        case _:
            reason = " ".join(str(error).split()) or type(error).__name__
            hint = (
                _("If the carrier does not use TLS, use smpp:// without tls=1.")
                if settings.tls
                else _("If the carrier requires TLS, use smpps://.")
            )
            text = _("The connection to {place} was lost ({reason}).")
            return f"{text.format(place=place, reason=reason)} {hint}"


def _place(settings: CarrierSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{settings.port}"
