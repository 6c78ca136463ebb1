"""The payment providers that are configured."""

from collections.abc import Mapping

from tumira.core.settings.payments import Payments
from tumira.topups.providers import Provider
from tumira.topups.providers.blu import BluProvider
from tumira.topups.providers.onevoucher import OneVoucherProvider
from tumira.topups.providers.ott import OttProvider
from tumira.topups.providers.paynow import PaynowProvider


def open_providers(payments: Payments, public_url: str) -> Mapping[str, Provider]:
    """Return the configured providers by `worker.provider_key`."""
    providers: dict[str, Provider] = {}
    if payments.paynow is not None:
        providers["paynow"] = PaynowProvider(payments.paynow, public_url)
    if payments.one_voucher is not None:
        providers["onevoucher"] = OneVoucherProvider(payments.one_voucher)
    if payments.ott is not None:
        providers["ott"] = OttProvider(payments.ott)
    if payments.blu is not None:
        providers["blu"] = BluProvider(payments.blu)
    return providers
