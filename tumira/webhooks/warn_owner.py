"""Notices to the owner of an endpoint that keeps failing or is disabled."""

from typing import Final

from tumira.core.days import local_time
from tumira.core.translation import _
from tumira.sending.owner_notices import OwnerNotice
from tumira.webhooks.leases import EndpointProgress, LockedEndpoint
from tumira.webhooks.manage import host_of

# The host of an endpoint may be longer than a text message.
_HOST_MAX: Final = 40


def owner_warning(before: LockedEndpoint, worker: str, progress: EndpointProgress) -> OwnerNotice | None:
    """Return the notice about an endpoint that has failed for another while, or that is now disabled.

    Compared with the row, so that results which are written twice lead to one notice; results that the row
    does not take lead to none.
    """
    if before.worker != worker or before.changed_at != progress.changed_at or before.state != "active":
        return None
    since, host = progress.health.failing_since, _short(host_of(before.url))
    if progress.disabled_for is not None:
        text = _(
            "Your webhook endpoint {host} is disabled, because it did not accept events. Fix your server, "
            "then resume the endpoint in the dashboard."
        )
        return OwnerNotice(before.account_id, _("Your webhook endpoint is disabled"), text.format(host=host))
    if since is None or progress.health.warnings <= before.warnings:
        return None
    text = _(
        "Your webhook endpoint {host} has been failing since {time}. We keep trying; see Webhooks in the "
        "dashboard."
    )
    return OwnerNotice(
        before.account_id,
        _("Your webhook endpoint is failing"),
        text.format(host=host, time=f"{local_time(since):%-d %b %H:%M}"),
    )


def _short(host: str) -> str:
    return host if len(host) <= _HOST_MAX else host[: _HOST_MAX - 3] + "..."
