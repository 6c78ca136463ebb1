"""All stand-ins of providers."""

from collections.abc import Mapping
from typing import Final

from tests.support.carriers.africastalking import AfricasTalkingServer
from tests.support.carriers.bluedot import BluedotServer
from tests.support.carriers.bulksms import BulkSmsServer
from tests.support.carriers.clickatell import ClickatellServer
from tests.support.carriers.esolutions import ESolutionsServer
from tests.support.carriers.infobip import InfobipServer
from tests.support.carriers.server import CarrierServer
from tests.support.carriers.smsportal import SmsPortalServer
from tests.support.carriers.twilio import TwilioServer
from tests.support.carriers.vonage import VonageServer

SERVERS: Final[Mapping[str, type[CarrierServer]]] = {
    server.profile: server
    for server in (
        AfricasTalkingServer,
        BluedotServer,
        BulkSmsServer,
        ClickatellServer,
        ESolutionsServer,
        InfobipServer,
        SmsPortalServer,
        TwilioServer,
        VonageServer,
    )
}
