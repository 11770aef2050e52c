# SPDX-License-Identifier: Apache-2.0
"""aiokafka: the asyncio client."""
import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from card import BASE, BOOTSTRAP, CODECS, REPLICAS, NotThere, case, check, equal, main, name, say

SERVERS = ",".join(BOOTSTRAP)


def acase(what, *args):
    """Registers a coroutine as a case."""
    def register(fn):
        async def limited():
            await asyncio.wait_for(fn(*args), 55)
        case(what)(lambda: asyncio.run(limited()))
        return fn
    return register


class Started:
    """async with Started(x): started and stopped."""

    def __init__(self, x, stop="stop"):
        self.x, self.end = x, stop

    async def __aenter__(self):
        await self.x.start()
        return self.x

    async def __aexit__(self, *_):
        await getattr(self.x, self.end)()


def admin():
    return Started(AIOKafkaAdminClient(bootstrap_servers=SERVERS), "close")


def producer(**kw):
    return Started(AIOKafkaProducer(bootstrap_servers=SERVERS, **kw))


def consumer(*topics, **kw):
    return Started(AIOKafkaConsumer(*topics, bootstrap_servers=SERVERS, **{"enable_auto_commit": False, "auto_offset_reset": "earliest", **kw}))


async def until(fn, seconds=30):
    end = asyncio.get_event_loop().time() + seconds
    while not await fn():
        check(asyncio.get_event_loop().time() < end, "not true within", seconds, "s")
        await asyncio.sleep(0.1)


async def topic(what, partitions=1, **kw):
    t = name(what)
    async with admin() as a:
        await a.create_topics([NewTopic(t, partitions, REPLICAS, **kw)])

        async def there():
            return t in await a.list_topics()
        await until(there)
    return t


async def fill(t, n=10, **kw):
    async with producer(**{"acks": "all", **kw}) as p:
        for i in range(n):
            await p.send_and_wait(t, b"v%d" % i, partition=0, timestamp_ms=BASE + i * 1000)


async def read(c, n):
    got = []
    while len(got) < n:
        for records in (await c.getmany(timeout_ms=500)).values():
            got += records
    return got


async def all_of(t, n, start=0, **kw):
    async with consumer(**kw) as c:
        c.assign([TopicPartition(t, 0)])
        c.seek(TopicPartition(t, 0), start)
        return await read(c, n)


@acase("metadata")
async def _():
    t = await topic("metadata", 3)
    async with consumer(t) as c:
        equal(c.partitions_for_topic(t), {0, 1, 2})


async def acks(how):
    t = await topic(f"acks-{how}")
    await fill(t, 1)  # the leader is there: without acknowledgements the client would not know
    await fill(t, 10, acks=how)
    equal([r.value for r in await all_of(t, 10, 1)], [b"v%d" % i for i in range(10)])


async def codec(what):
    t = await topic(f"codec-{what}")
    values = [b"%d " % i * 50 for i in range(100)]
    async with producer(compression_type=None if what == "none" else what, linger_ms=200) as p:
        await asyncio.gather(*[await p.send(t, v) for v in values])
    equal([r.value for r in await all_of(t, 100)], values)


for how in (0, 1, "all"):
    acase(f"produce-acks-{how}", how)(acks)
for what in CODECS:
    acase(f"codec-{what}", what)(codec)


@acase("produce-idempotent")
async def _():
    t = await topic("idempotent")
    await fill(t, 20, enable_idempotence=True)
    equal(len(await all_of(t, 20)), 20)


@acase("produce-keys-headers-nulls")
async def _():
    t = await topic("nulls")
    headers = [("h", b"1"), ("h", b"2"), ("e", b"")]
    async with producer() as p:
        await p.send_and_wait(t, key=b"k", value=None, headers=headers)
        await p.send_and_wait(t, key=None, value=b"")
    a, b = await all_of(t, 2)
    equal((a.key, a.value, list(a.headers)), (b"k", None, headers))
    equal((b.key, b.value), (None, b""))


@acase("produce-large-batch")
async def _():
    t = await topic("large")
    async with producer(max_batch_size=900000, linger_ms=500) as p:
        await asyncio.gather(*[await p.send(t, bytes(1000)) for _ in range(3000)])
        await p.send_and_wait(t, bytes(900000))
    got = await all_of(t, 3001)
    equal((len(got), len(got[-1].value)), (3001, 900000))


@acase("transactions")
async def _():
    t = await topic("txn")
    async with producer(transactional_id=name("txn")) as p:
        for word, end in ((b"no", p.abort_transaction), (b"yes", p.commit_transaction)):
            await p.begin_transaction()
            await p.send_and_wait(t, word)
            await end()
    equal([r.value for r in await all_of(t, 1, isolation_level="read_committed")], [b"yes"])


@acase("consume-earliest")
async def _():
    t = await topic("earliest")
    await fill(t)
    async with consumer() as c:
        c.assign([TopicPartition(t, 0)])
        await c.seek_to_beginning()
        equal([r.offset for r in await read(c, 10)], list(range(10)))


@acase("consume-latest")
async def _():
    t = await topic("latest")
    await fill(t)
    async with consumer() as c:
        c.assign([TopicPartition(t, 0)])
        await c.seek_to_end()
        equal(await c.position(TopicPartition(t, 0)), 10)
        await fill(t, 1)
        equal([r.offset for r in await read(c, 1)], [10])


@acase("consume-offset")
async def _():
    t = await topic("offset")
    await fill(t)
    equal([r.offset for r in await all_of(t, 3, 7)], [7, 8, 9])


@acase("consume-timestamp")
async def _():
    t = await topic("timestamp")
    await fill(t)
    tp = TopicPartition(t, 0)
    async with consumer() as c:
        c.assign([tp])
        found = (await c.offsets_for_times({tp: BASE + 4500}))[tp]
        equal((found.offset, found.timestamp), (5, BASE + 5000))
        equal((await c.offsets_for_times({tp: BASE + 7200_000}))[tp], None)
        equal(((await c.beginning_offsets([tp]))[tp], (await c.end_offsets([tp]))[tp]), (0, 10))


async def joined(what, **kw):
    t, g = await topic(what), name(f"g-{what}")
    await fill(t)
    async with consumer(t, group_id=g, **kw) as c:
        equal(len(await read(c, 10)), 10)
        tp = TopicPartition(t, 0)
        await c.commit({tp: 6})
        equal(await c.committed(tp), 6)
        if "group_instance_id" not in kw:
            async with admin() as a:
                check(g in str(await a.list_consumer_groups()), "not listed")
                check("Stable" in str(await a.describe_consumer_groups([g])), "not Stable")
    return t, g


@acase("group-join-commit")
async def _():
    await joined("join")


@acase("group-resume")
async def _():
    t, g = await joined("resume")
    async with consumer(t, group_id=g) as c:
        equal([r.offset for r in await read(c, 4)], [6, 7, 8, 9])


@acase("group-rebalance")
async def _():
    t, g = await topic("rebalance", 4), name("g-rebalance")
    async with consumer(t, group_id=g, heartbeat_interval_ms=500) as one:
        async def share(c, n):
            async def has():
                await c.getmany(timeout_ms=100)
                return len(c.assignment()) == n
            await until(has, 40)
        await share(one, 4)
        async with consumer(t, group_id=g, heartbeat_interval_ms=500) as two:
            await asyncio.gather(share(one, 2), share(two, 2))
            check(not one.assignment() & two.assignment())


@acase("group-static")
async def _():
    await joined("static", group_instance_id="one")


@acase("admin-create-topic")
async def _():
    await topic("created", 2, topic_configs={"retention.ms": "3600000"})


@acase("admin-create-partitions")
async def _():
    t = await topic("grow")
    async with admin() as a:
        await a.create_partitions({t: NewPartitions(3)})

        async def grown():
            return len((await a.describe_topics([t]))[0]["partitions"]) == 3
        await until(grown)


@acase("admin-delete-topic")
async def _():
    t = await topic("gone")
    async with admin() as a:
        await a.delete_topics([t])

        async def gone():
            return t not in await a.list_topics()
        await until(gone)


@acase("admin-describe-cluster")
async def _():
    async with admin() as a:
        equal(len((await a.describe_cluster())["brokers"]), REPLICAS)


@acase("admin-describe-configs")
async def _():
    t = await topic("configs")
    async with admin() as a:
        check("604800000" in str(await a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, t)])))


@acase("admin-alter-configs")
async def _():
    t = await topic("alter")
    async with admin() as a:
        await a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, t, {"retention.ms": "7200000"})])

        async def altered():
            return "7200000" in str(await a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, t)]))
        await until(altered)


@acase("admin-list-groups")
async def _():
    await joined("list")


@acase("admin-describe-group")
async def _():
    t, g = await joined("describe")
    async with admin() as a:
        equal((await a.list_consumer_group_offsets(g))[TopicPartition(t, 0)].offset, 6)


@acase("admin-delete-group")
async def _():
    async with admin() as a:
        if not hasattr(a, "delete_consumer_groups"):
            raise NotThere("no delete_consumer_groups")


@acase("admin-delete-records")
async def _():
    t = await topic("records")
    await fill(t)
    tp = TopicPartition(t, 0)
    async with admin() as a, consumer() as c:
        await a.delete_records({tp: RecordsToDelete(before_offset=4)})
        equal((await c.beginning_offsets([tp]))[tp], 4)


say("version", aiokafka.__version__)
main()
