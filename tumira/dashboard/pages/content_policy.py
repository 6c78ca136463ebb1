"""The public page about what may be sent, what is marketing, and how to ask for a review."""

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.dashboard.session import Services
from tumira.html.sign_in import public

CONTENT_POLICY: Final = "/content-policy"

# A text that may be sent, beside one that is refused. Messages of customers are not translated.
EXAMPLES: Final = (
    ("Your order 1042 is on its way.", "Your order 1042 is on its way. Get 20% off your next order!"),
    (
        "EcoCash: you received USD 20.00 from TENDAI. Balance USD 31.40.",
        "EcoCash: send USD 20 this week and get USD 1 back.",
    ),
    (
        "Dear parent, term 2 fees of USD 120 are due on 6 May.",
        "Dear parent, enrolment for 2027 is open. Limited places, visit our open day on Saturday.",
    ),
    (
        "Capfin: your instalment of R412 is due on 25 June.",
        "Capfin: you qualify for a loan of up to R15 000. Dial *120*555#.",
    ),
    ("Clicks: you have 312 points worth R31.20.", "Clicks: 3 for 2 on all vitamins until Sunday."),
    ("Mari yenyu USD 20 yapinda muEcoCash.", "Hwina USD 100 nhasi! Tumira WIN ku 32100."),
    (
        "Iphasela lakho selifikile ePEP, lilande ngaphambi koLwesihlanu.",
        "Uwine! Thenga idatha ka-R29 namuhla uthole i-2GB mahhala.",
    ),
    ("Jou afspraak by dr Nel is Dinsdag 10:00.", "Koop nou en kry 30% afslag op alle skoene."),
)


def routes(services: Services) -> Sequence[Route]:
    return [public(services, CONTENT_POLICY, show)]


async def show(services: Services, _request: Request) -> Response:
    return services.templates.page(
        "content_policy.html.jinja", headers={"Cache-Control": "no-cache"}, examples=EXAMPLES
    )
