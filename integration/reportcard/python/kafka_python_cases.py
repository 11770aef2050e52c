# SPDX-License-Identifier: Apache-2.0
"""kafka-python, 2.0.2 to 3.0: one program for all of them."""
import threading
import time

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

try:
    from kafka.admin import NewPartitions
except ImportError:
    NewPartitions = None
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata

from card import BASE, BOOTSTRAP, CODECS, REPLICAS, NotThere, case, check, equal, main, name, say, until

VERSION = tuple(int(x) for x in kafka.__version__.split(".")[:3])


def admin():
    return KafkaAdminClient(bootstrap_servers=BOOTSTRAP)


def topic(what, partitions=1):
    t = name(what)
    a = admin()
    a.create_topics([NewTopic(t, partitions, REPLICAS)])
    until(lambda: t in a.list_topics())
    a.close()
    return t


def producer(**kw):
    return KafkaProducer(bootstrap_servers=BOOTSTRAP, **kw)


def consumer(**kw):
    return KafkaConsumer(bootstrap_servers=BOOTSTRAP, **kw)


def fill(t, n=10, partition=0, **kw):
    p = producer(**{"acks": "all", **kw})
    for i in range(n):
        p.send(t, value=b"v%d" % i, partition=partition, timestamp_ms=BASE + i * 1000).get(30)
    p.close()


def read(c, n, seconds=30):
    got, deadline = [], time.time() + seconds
    while len(got) < n and time.time() < deadline:
        for records in c.poll(timeout_ms=500).values():
            got += records
    return got


def assigned(t, partition=0, **kw):
    c = consumer(**kw)
    c.assign([TopicPartition(t, partition)])
    return c


def offset_and_metadata(offset):
    return OffsetAndMetadata(offset, "m") if VERSION < (2, 1) else OffsetAndMetadata(offset, "m", -1)


@case("metadata")
def _():
    t = topic("metadata", 3)
    c = consumer()
    equal(c.partitions_for_topic(t), {0, 1, 2})
    check(t in c.topics())
    c.close()


def acks(how):
    t = topic(f"acks-{how}")
    fill(t, 1)  # the leader is there: without acknowledgements the client would not know
    p = producer(acks=how)
    for i in range(20):
        p.send(t, b"%d" % i)
    p.flush(30)
    p.close()
    c = assigned(t, auto_offset_reset="earliest")
    equal([r.value for r in read(c, 21)][1:], [b"%d" % i for i in range(20)])
    c.close()


for how in (0, 1, "all"):
    case(f"produce-acks-{how}")(lambda how=how: acks(how))


def codec(what):
    if what == "zstd" and VERSION < (2, 0, 1):
        raise NotThere("no zstd")
    t = topic(f"codec-{what}")
    p = producer(compression_type=None if what == "none" else what, linger_ms=200)
    values = [b"%d " % i * 50 for i in range(100)]
    sent = [p.send(t, v) for v in values]
    for s in sent:
        s.get(30)
    p.close()
    c = assigned(t, auto_offset_reset="earliest")
    equal([r.value for r in read(c, 100)], values)
    c.close()


for what in CODECS:
    case(f"codec-{what}")(lambda what=what: codec(what))


@case("produce-idempotent")
def _():
    if VERSION < (2, 1):
        raise NotThere("no idempotent producer before 2.1")
    t = topic("idempotent")
    fill(t, 20, enable_idempotence=True)
    c = assigned(t, auto_offset_reset="earliest")
    equal(len(read(c, 20)), 20)
    c.close()


@case("produce-keys-headers-nulls")
def _():
    t = topic("nulls")
    p = producer()
    p.send(t, key=b"k", value=None, headers=[("h", b"1"), ("h", b"2"), ("e", b"")]).get(30)
    p.send(t, key=None, value=b"").get(30)
    p.close()
    c = assigned(t, auto_offset_reset="earliest")
    a, b = read(c, 2)
    equal((a.key, a.value, list(a.headers)), (b"k", None, [("h", b"1"), ("h", b"2"), ("e", b"")]))
    equal((b.key, b.value), (None, b""))
    c.close()


@case("produce-large-batch")
def _():
    t = topic("large")
    p = producer(batch_size=900000, linger_ms=500)
    sent = [p.send(t, bytes(1000), partition=0) for _ in range(3000)] + [p.send(t, bytes(900000), partition=0)]
    for s in sent:
        s.get(40)
    p.close()
    c = assigned(t, auto_offset_reset="earliest")
    got = read(c, 3001)
    equal((len(got), len(got[-1].value)), (3001, 900000))
    c.close()


@case("transactions")
def _():
    if VERSION < (2, 1):
        raise NotThere("no transactions before 2.1")
    t = topic("txn")
    p = producer(transactional_id=name("txn"))
    p.init_transactions()
    for word, commit in ((b"no", False), (b"yes", True)):
        p.begin_transaction()
        p.send(t, word)
        p.flush()
        if commit:
            p.commit_transaction()
        else:
            p.abort_transaction()
    p.close()
    c = assigned(t, auto_offset_reset="earliest", isolation_level="read_committed")
    equal([r.value for r in read(c, 1)], [b"yes"])
    c.close()


@case("consume-earliest")
def _():
    t = topic("earliest")
    fill(t)
    c = assigned(t)
    c.seek_to_beginning()
    equal([r.offset for r in read(c, 10)], list(range(10)))
    c.close()


@case("consume-latest")
def _():
    t = topic("latest")
    fill(t)
    c = assigned(t)
    c.seek_to_end()
    equal(c.position(TopicPartition(t, 0)), 10)
    fill(t, 1)
    equal([r.offset for r in read(c, 1)], [10])
    c.close()


@case("consume-offset")
def _():
    t = topic("offset")
    fill(t)
    c = assigned(t)
    c.seek(TopicPartition(t, 0), 7)
    equal([r.offset for r in read(c, 3)], [7, 8, 9])
    c.close()


@case("consume-timestamp")
def _():
    t = topic("timestamp")
    fill(t)
    tp = TopicPartition(t, 0)
    c = assigned(t)
    found = c.offsets_for_times({tp: BASE + 4500})[tp]
    equal((found.offset, found.timestamp), (5, BASE + 5000))
    c.seek(tp, found.offset)
    equal([r.offset for r in read(c, 5)], [5, 6, 7, 8, 9])
    equal(c.offsets_for_times({tp: BASE + 7200_000})[tp], None)
    equal((c.beginning_offsets([tp])[tp], c.end_offsets([tp])[tp]), (0, 10))
    c.close()


@case("group-join-commit")
def _():
    t, g = topic("join"), name("g-join")
    fill(t)
    c = consumer(group_id=g, auto_offset_reset="earliest", enable_auto_commit=False)
    c.subscribe([t])
    equal(len(read(c, 10)), 10)
    tp = TopicPartition(t, 0)
    c.commit({tp: offset_and_metadata(6)})
    equal(c.committed(tp), 6)
    c.close()


@case("group-resume")
def _():
    t, g = topic("resume"), name("g-resume")
    fill(t)
    for want in (list(range(4)), list(range(4, 10))):
        c = consumer(group_id=g, auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=4 if want[0] == 0 else 100)
        c.subscribe([t])
        equal([r.offset for r in read(c, len(want))], want)
        c.commit()
        c.close()


@case("group-rebalance")
def _():
    t, g = topic("rebalance", 4), name("g-rebalance")
    members = [consumer(group_id=g, heartbeat_interval_ms=500, session_timeout_ms=10000) for _ in range(2)]
    stop, shares = threading.Event(), [set(), set()]

    def drive(i):
        members[i].subscribe([t])
        while not stop.is_set():
            members[i].poll(timeout_ms=200)
            shares[i] = {p.partition for p in members[i].assignment()}

    threads = [threading.Thread(target=drive, args=(i,), daemon=True) for i in range(2)]
    threads[0].start()
    until(lambda: len(shares[0]) == 4)
    threads[1].start()
    try:
        until(lambda: len(shares[0]) == 2 and len(shares[1]) == 2 and not shares[0] & shares[1], 40)
    finally:
        stop.set()
    for th in threads:
        th.join(10)
    for m in members:
        m.close()


@case("group-static")
def _():
    t, g = topic("static"), name("g-static")
    fill(t)
    try:
        c = consumer(group_id=g, group_instance_id="one", auto_offset_reset="earliest")
    except Exception as e:
        raise NotThere(f"no group_instance_id: {e}")
    c.subscribe([t])
    equal(len(read(c, 10)), 10)
    c.close()


@case("admin-create-topic")
def _():
    t = name("created")
    a = admin()
    a.create_topics([NewTopic(t, 2, REPLICAS, topic_configs={"retention.ms": "3600000"})])
    until(lambda: t in a.list_topics())
    try:
        a.create_topics([NewTopic(t, 2, REPLICAS)])
    except kafka.errors.TopicAlreadyExistsError:
        pass
    else:
        raise AssertionError("the same topic twice was no error")
    a.close()


@case("admin-create-partitions")
def _():
    t = topic("grow", 1)
    a = admin()
    a.create_partitions({t: NewPartitions(3)})
    c = consumer()
    until(lambda: (c.topics(), c.partitions_for_topic(t))[1] == {0, 1, 2})
    c.close()
    a.close()


@case("admin-delete-topic")
def _():
    t = topic("gone")
    a = admin()
    a.delete_topics([t])
    until(lambda: t not in a.list_topics())
    a.close()


@case("admin-describe-cluster")
def _():
    a = admin()
    equal(len(a.describe_cluster()["brokers"]), REPLICAS)
    a.close()


def config_of(a, t, key):
    resource = ConfigResource(ConfigResourceType.TOPIC, t)
    if VERSION >= (3,):
        return str(a.describe_configs([resource], config_filter="all")["topic"][t][key])
    res = a.describe_configs([resource])
    entries = res[0].resources[0][4]
    return str(next(e[1] for e in entries if e[0] == key))


@case("admin-describe-configs")
def _():
    t = topic("configs")
    a = admin()
    check("604800000" in config_of(a, t, "retention.ms"))
    a.close()


@case("admin-alter-configs")
def _():
    t = topic("alter")
    a = admin()
    a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, t, {"retention.ms": "7200000"})])
    until(lambda: "7200000" in config_of(a, t, "retention.ms"))
    a.close()


def group_with_offsets(what):
    t, g = topic(what), name(f"g-{what}")
    fill(t)
    c = consumer(group_id=g, auto_offset_reset="earliest", enable_auto_commit=False)
    c.subscribe([t])
    equal(len(read(c, 10)), 10)
    c.commit()
    return t, g, c


def listed(a):
    fn = getattr(a, "list_consumer_groups", None) or a.list_groups
    return str(fn())


@case("admin-list-groups")
def _():
    _, g, c = group_with_offsets("list")
    a = admin()
    until(lambda: g in listed(a))
    c.close()
    a.close()


@case("admin-describe-group")
def _():
    t, g, c = group_with_offsets("describe")
    a = admin()
    fn = getattr(a, "describe_consumer_groups", None) or a.describe_groups
    check("Stable" in str(fn([g])), fn([g]))
    fn = getattr(a, "list_consumer_group_offsets", None) or a.list_group_offsets
    check("10" in str(fn(g)), fn(g))
    c.close()
    a.close()


@case("admin-delete-group")
def _():
    _, g, c = group_with_offsets("delete")
    c.close()
    a = admin()
    fn = getattr(a, "delete_consumer_groups", None) or a.delete_groups
    until(lambda: "NoError" in str(fn([g])) or g not in listed(a))
    until(lambda: g not in listed(a))
    a.close()


@case("admin-offsets-by-time")
def _():
    a = admin()
    if not hasattr(a, "list_partition_offsets"):
        raise NotThere("the admin client has no ListOffsets")
    t = topic("bytime")
    fill(t)
    tp = TopicPartition(t, 0)
    equal(a.list_partition_offsets({tp: BASE + 4500})[tp].offset, 5)
    a.close()


@case("admin-delete-records")
def _():
    a = admin()
    if not hasattr(a, "delete_records"):
        raise NotThere("no delete_records")
    t = topic("records")
    fill(t)
    tp = TopicPartition(t, 0)
    a.delete_records({tp: 4})
    c = consumer()
    until(lambda: c.beginning_offsets([tp])[tp] == 4)
    c.close()
    a.close()


say("version", kafka.__version__)
main()
