# SPDX-License-Identifier: Apache-2.0
"""confluent-kafka for Python: librdkafka, as its wheel brings it."""
import time

import confluent_kafka as ck
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from card import BASE, BOOTSTRAP, CODECS, REPLICAS, case, check, equal, main, name, say, until

SERVERS = {"bootstrap.servers": ",".join(BOOTSTRAP)}


ADMIN = AdminClient(SERVERS)  # one for all: a client that is dropped takes its futures with it


def admin():
    return ADMIN


def done(futures, seconds=40):
    return {k: f.result(seconds) for k, f in futures.items()}


def topic(what, partitions=1, **kw):
    t = name(what)
    done(admin().create_topics([NewTopic(t, partitions, REPLICAS, **kw)]))
    until(lambda: t in admin().list_topics(timeout=30).topics)
    return t


def produce(t, messages, **conf):
    errors = []
    p = Producer({**SERVERS, **{k.replace("_", "."): v for k, v in conf.items()}})
    for m in messages:
        while True:
            try:
                p.produce(t, on_delivery=lambda e, _: e and errors.append(e), **m)
                break
            except BufferError:
                p.poll(0.1)
        p.poll(0)
    equal(p.flush(40), 0, "still queued:")
    equal(errors, [])


def fill(t, n=10, **conf):
    produce(t, [{"value": b"v%d" % i, "partition": 0, "timestamp": BASE + i * 1000} for i in range(n)], **conf)


def consumer(**kw):
    conf = {"group.id": name("none"), "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer({**SERVERS, **conf, **kw})


def read(c, n, seconds=30):
    got, deadline = [], time.time() + seconds
    while len(got) < n and time.time() < deadline:
        m = c.poll(0.5)
        if m is not None:
            check(m.error() is None, m.error())
            got.append(m)
    return got


def assigned(t, offset=ck.OFFSET_BEGINNING, **kw):
    c = consumer(**kw)
    c.assign([TopicPartition(t, 0, offset)])
    return c


@case("metadata")
def _():
    t = topic("metadata", 3)
    md = admin().list_topics(timeout=30)
    equal((len(md.topics[t].partitions), len(md.brokers)), (3, REPLICAS))


def acks(how):
    t = topic(f"acks-{how}")
    fill(t, 1)  # the leader is there: without acknowledgements the client would not know
    fill(t, 20, acks=how)
    c = assigned(t, 1)
    equal([m.value() for m in read(c, 20)], [b"v%d" % i for i in range(20)])
    c.close()


for how in ("0", "1", "all"):
    case(f"produce-acks-{how}")(lambda how=how: acks(how))


def codec(what):
    t = topic(f"codec-{what}")
    values = [b"%d " % i * 50 for i in range(100)]
    produce(t, [{"value": v} for v in values], compression_type=what, linger_ms=200)
    c = assigned(t)
    equal([m.value() for m in read(c, 100)], values)
    c.close()


for what in CODECS:
    case(f"codec-{what}")(lambda what=what: codec(what))


@case("produce-idempotent")
def _():
    t = topic("idempotent")
    fill(t, 20, enable_idempotence=True)
    c = assigned(t)
    equal(len(read(c, 20)), 20)
    c.close()


@case("produce-keys-headers-nulls")
def _():
    t = topic("nulls")
    headers = [("h", b"1"), ("h", b"2"), ("e", b"")]
    produce(t, [{"key": b"k", "value": None, "headers": headers}, {"key": None, "value": b""}])
    c = assigned(t)
    a, b = read(c, 2)
    equal((a.key(), a.value(), a.headers()), (b"k", None, headers))
    equal((b.key(), b.value()), (None, b""))
    c.close()


@case("produce-large-batch")
def _():
    t = topic("large")
    many = [{"value": bytes(1000), "partition": 0}] * 3000 + [{"value": bytes(900000), "partition": 0}]
    produce(t, many, batch_size=1000000, linger_ms=500)
    c = assigned(t)
    got = read(c, 3001)
    equal((len(got), len(got[-1].value())), (3001, 900000))
    c.close()


@case("transactions")
def _():
    t = topic("txn")
    p = Producer({**SERVERS, "transactional.id": name("txn")})
    p.init_transactions(30)
    for word, end in ((b"no", p.abort_transaction), (b"yes", p.commit_transaction)):
        p.begin_transaction()
        p.produce(t, word)
        p.flush(30)
        end(30)
    c = assigned(t)
    equal([m.value() for m in read(c, 1)], [b"yes"])
    c.close()


@case("consume-earliest")
def _():
    t = topic("earliest")
    fill(t)
    c = assigned(t)
    equal([m.offset() for m in read(c, 10)], list(range(10)))
    c.close()


@case("consume-latest")
def _():
    t = topic("latest")
    fill(t)
    c = assigned(t, ck.OFFSET_END)
    equal(len(read(c, 1, 3)), 0)
    fill(t, 1)
    equal([m.offset() for m in read(c, 1)], [10])
    c.close()


@case("consume-offset")
def _():
    t = topic("offset")
    fill(t)
    c = assigned(t, 7)
    equal([m.offset() for m in read(c, 3)], [7, 8, 9])
    c.close()


@case("consume-timestamp")
def _():
    t = topic("timestamp")
    fill(t)
    c = consumer()
    found = c.offsets_for_times([TopicPartition(t, 0, BASE + 4500)], 30)[0]
    equal(found.offset, 5)
    c.assign([found])
    equal([m.offset() for m in read(c, 5)], [5, 6, 7, 8, 9])
    equal(c.get_watermark_offsets(TopicPartition(t, 0), 30), (0, 10))
    c.close()


def join_commit(what, **kw):
    t, g = topic(what), name(f"g-{what}")
    fill(t)
    c = consumer(**{"group.id": g}, **kw)
    c.subscribe([t])
    equal(len(read(c, 10)), 10)
    c.commit(offsets=[TopicPartition(t, 0, 6)], asynchronous=False)
    equal(c.committed([TopicPartition(t, 0)], 30)[0].offset, 6)
    return t, g, c


@case("group-join-commit")
def _():
    join_commit("join")[2].close()


@case("group-resume")
def _():
    t, g, c = join_commit("resume")
    c.close()
    c = consumer(**{"group.id": g})
    c.subscribe([t])
    equal([m.offset() for m in read(c, 4)], [6, 7, 8, 9])
    c.close()


def rebalance(what, **kw):
    t, g = topic(what, 4), name(f"g-{what}")
    members = [consumer(**{"group.id": g}, **kw) for _ in range(2)]

    def shares():
        for m in members:
            m.poll(0.1)
        return [{p.partition for p in m.assignment()} for m in members]

    members[0].subscribe([t])
    until(lambda: len(shares()[0]) == 4)
    members[1].subscribe([t])
    until(lambda: [len(s) for s in shares()] == [2, 2], 40)
    for m in members:
        m.close()


@case("group-rebalance")
def _():
    rebalance("rebalance")


@case("group-rebalance-cooperative")
def _():
    rebalance("cooperative", **{"partition.assignment.strategy": "cooperative-sticky"})


@case("group-static")
def _():
    join_commit("static", **{"group.instance.id": "one"})[2].close()


@case("group-consumer-protocol")
def _():
    kw = {"group.protocol": "consumer"}
    t, g, c = join_commit("kip848", **kw)
    c.close()
    c = consumer(**{"group.id": g}, **kw)
    c.subscribe([t])
    equal([m.offset() for m in read(c, 4)], [6, 7, 8, 9])
    c.close()


@case("group-consumer-protocol-rebalance")
def _():
    rebalance("kip848-rebalance", **{"group.protocol": "consumer"})


@case("admin-create-topic")
def _():
    t = topic("created", 2, config={"retention.ms": "3600000"})
    try:
        topic("created", 2)
    except ck.KafkaException as e:
        equal(e.args[0].code(), ck.KafkaError.TOPIC_ALREADY_EXISTS)
    else:
        raise AssertionError("the same topic twice was no error")
    equal(len(done(admin().describe_topics(ck.TopicCollection([t])))[t].partitions), 2)


@case("admin-create-partitions")
def _():
    t = topic("grow")
    a = admin()
    done(a.create_partitions([NewPartitions(t, 3)]))
    until(lambda: len(a.list_topics(t, 30).topics[t].partitions) == 3)


@case("admin-delete-topic")
def _():
    t = topic("gone")
    a = admin()
    done(a.delete_topics([t]))
    until(lambda: t not in a.list_topics(timeout=30).topics)


@case("admin-describe-cluster")
def _():
    equal(len(admin().describe_cluster().result(30).nodes), REPLICAS)


def retention(a, t):
    r = ConfigResource(ConfigResource.Type.TOPIC, t)
    return done(a.describe_configs([r]))[r]["retention.ms"].value


@case("admin-describe-configs")
def _():
    equal(retention(admin(), topic("configs")), "604800000")


@case("admin-alter-configs")
def _():
    t, a = topic("alter"), admin()
    entry = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    done(a.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, t, incremental_configs=[entry])]))
    until(lambda: retention(a, t) == "7200000")


@case("admin-list-groups")
def _():
    _, g, c = join_commit("list")
    until(lambda: g in [x.group_id for x in admin().list_consumer_groups().result(30).valid])
    c.close()


@case("admin-describe-group")
def _():
    t, g, c = join_commit("describe")
    a = admin()
    got = done(a.describe_consumer_groups([g]))[g]
    equal((got.state, len(got.members)), (ck.ConsumerGroupState.STABLE, 1))
    offsets = done(a.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(g)]))[g]
    equal(offsets.topic_partitions[0].offset, 6)
    c.close()


@case("admin-delete-group")
def _():
    _, g, c = join_commit("delete")
    c.close()
    a = admin()
    done(a.delete_consumer_groups([g]))
    until(lambda: g not in [x.group_id for x in a.list_consumer_groups().result(30).valid])


@case("admin-offsets-by-time")
def _():
    t = topic("bytime")
    fill(t)
    tp = TopicPartition(t, 0)
    for spec, want in ((OffsetSpec.for_timestamp(BASE + 4500), 5), (OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 10), (OffsetSpec.max_timestamp(), 9)):
        equal(done(admin().list_offsets({tp: spec}))[tp].offset, want)


@case("admin-delete-records")
def _():
    t = topic("records")
    fill(t)
    equal(done(admin().delete_records([TopicPartition(t, 0, 4)]))[TopicPartition(t, 0)].low_watermark, 4)


say("version", ck.version() if isinstance(ck.version(), str) else ck.version()[0], "librdkafka", ck.libversion()[0])
main()
