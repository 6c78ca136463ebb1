"""The owner of an endpoint that fails is alerted, once for each stage."""

from datetime import timedelta

from msgspec import structs

from tests.support.sending.owners import give_owner, texts_to_owner
from tests.support.webhooks.receivers import answer, run_receiver
from tests.support.webhooks.world import Added, Hooks
from tumira.webhooks import leases
from tumira.webhooks.leases import EndpointProgress
from tumira.webhooks.results import EndpointResults, record_results


async def test_an_endpoint_that_keeps_failing_is_told_of_after_an_hour_and_a_day(hooks: Hooks) -> None:
    phone = await give_owner(hooks.database, hooks.caller.id)
    async with run_receiver(answer(500)) as receiver:
        added = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.add_events()
        await hooks.until_attempts(added, 1)
        for stage, hours in enumerate((2, 25), 1):
            assert len(await texts_to_owner(hooks.database, phone)) == stage - 1
            hooks.clock.move(timedelta(hours=hours))
            await hooks.until_attempts(added, stage + 1)
            text = (await texts_to_owner(hooks.database, phone))[-1]
            assert text.startswith("Tumira: Your webhook endpoint 127.0.0.1:")
            assert "has been failing since" in text


async def test_a_disabled_endpoint_is_told_of(hooks: Hooks) -> None:
    phone = await give_owner(hooks.database, hooks.caller.id)
    async with run_receiver(answer(410)) as receiver:
        added = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.add_events()
        await hooks.until_state(added, "disabled")
    (text,) = await texts_to_owner(hooks.database, phone)
    assert "is disabled" in text


async def test_results_that_are_written_twice_or_no_longer_count_alert_once(hooks: Hooks) -> None:
    phone = await give_owner(hooks.database, hooks.caller.id)
    added = await hooks.add("http://127.0.0.1:9/" + "long" * 30)
    await lease(hooks, added)
    endpoint = await hooks.endpoint(added)
    failing = structs.replace(
        endpoint.health, failures=9, failing_since=hooks.clock() - timedelta(hours=2), warnings=1
    )
    stale = endpoint.changed_at - timedelta(seconds=1)
    for changed_at, told in ((stale, 0), (endpoint.changed_at, 1), (endpoint.changed_at, 1)):
        progress = EndpointProgress(added.id, changed_at, 0, failing, None)
        async with hooks.database.transaction() as connection:
            results = EndpointResults(progress, [], {}, has_recovered=False)
            await record_results(connection, "worker-1", [results], hooks.clock())
        assert len(await texts_to_owner(hooks.database, phone)) == told


async def lease(hooks: Hooks, added: Added) -> None:
    async with hooks.database.transaction() as connection:
        leased = await leases.lease(
            connection, [added.id], "worker-1", hooks.clock(), count_max=1, lease_s=60.0
        )
    assert len(leased) == 1
