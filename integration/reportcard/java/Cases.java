// SPDX-License-Identifier: Apache-2.0

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/** The cases of the Java client. */
public final class Cases {
    static final String BOOTSTRAP = System.getenv("CARD_BOOTSTRAP");
    static final short REPLICAS = Short.parseShort(System.getenv().getOrDefault("CARD_REPLICAS", "3"));
    static final long BASE = System.currentTimeMillis() - 3_600_000; // recent, as retention goes by it
    static final List<String> TEN = List.of("v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9");
    static final Map<String, Body> CASES = new LinkedHashMap<>();
    static final Admin ADMIN = Admin.create(Map.of("bootstrap.servers", BOOTSTRAP));

    interface Body { void run() throws Exception; }

    static String name(String what) { return System.getenv("CARD_RUN") + "-" + what; }

    static void equal(Object got, Object want) {
        if (!String.valueOf(got).equals(String.valueOf(want))) throw new AssertionError("got " + got + " want " + want);
    }

    static void until(String what, Callable<Boolean> holds) throws Exception {
        for (long end = System.nanoTime() + 40_000_000_000L; !holds.call(); Thread.sleep(100))
            if (System.nanoTime() > end) throw new AssertionError("no " + what + " within 40 s");
    }

    static <T> T get(KafkaFuture<T> f) throws Exception { return f.get(40, TimeUnit.SECONDS); }

    static String topic(String what, int partitions) throws Exception {
        String t = name(what);
        get(ADMIN.createTopics(List.of(new NewTopic(t, partitions, REPLICAS))).all());
        until("topic " + t, () -> {
            try { return get(ADMIN.describeTopics(List.of(t)).allTopicNames()).get(t).partitions().size() == partitions; }
            catch (ExecutionException e) { return false; }
        });
        return t;
    }

    static Map<String, Object> with(Map<String, Object> base, String... more) {
        Map<String, Object> out = new HashMap<>(base);
        out.put("bootstrap.servers", BOOTSTRAP);
        for (int i = 0; i < more.length; i += 2) out.put(more[i], more[i + 1]);
        return out;
    }

    static KafkaProducer<String, byte[]> producer(String... more) {
        return new KafkaProducer<>(with(Map.of(), more), new StringSerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<String, byte[]> consumer(String... more) {
        return new KafkaConsumer<>(with(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", "false"), more),
                new StringDeserializer(), new ByteArrayDeserializer());
    }

    static void fill(String t, int n, String... more) throws Exception {
        try (var p = producer(more)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < n; i++) sent.add(p.send(new ProducerRecord<>(t, 0, BASE + i * 1000L, null, ("v" + i).getBytes())));
            for (var f : sent) f.get(40, TimeUnit.SECONDS);
        }
    }

    static List<ConsumerRecord<String, byte[]>> take(Consumer<String, byte[]> c, int n) {
        List<ConsumerRecord<String, byte[]>> got = new ArrayList<>();
        for (long end = System.nanoTime() + 40_000_000_000L; got.size() < n && System.nanoTime() < end; )
            c.poll(Duration.ofMillis(500)).forEach(got::add);
        return got;
    }

    static List<String> values(List<ConsumerRecord<String, byte[]>> got) {
        return got.stream().map(r -> new String(r.value())).toList();
    }

    static List<ConsumerRecord<String, byte[]>> read(String t, long from, int n, String... more) {
        try (var c = consumer(more)) {
            var tp = new TopicPartition(t, 0);
            c.assign(List.of(tp));
            c.seek(tp, from);
            return take(c, n);
        }
    }

    static void produce() {
        for (String acks : List.of("0", "1", "all")) CASES.put("produce-acks-" + acks, () -> {
            String t = topic("acks-" + acks, 1);
            fill(t, 1); // the leader is there: without acknowledgements the client would not know
            fill(t, 10, "acks", acks, "enable.idempotence", "false");
            equal(values(read(t, 1, 10)), TEN);
        });
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) CASES.put("codec-" + codec, () -> {
            String t = topic("codec-" + codec, 1);
            fill(t, 10, "compression.type", codec, "linger.ms", "200");
            equal(values(read(t, 0, 10)), TEN);
        });
        CASES.put("produce-idempotent", () -> {
            String t = topic("idempotent", 1);
            fill(t, 10, "enable.idempotence", "true");
            equal(values(read(t, 0, 10)), TEN);
        });
        CASES.put("produce-keys-headers-nulls", () -> {
            String t = topic("nulls", 1);
            try (var p = producer()) {
                var r = new ProducerRecord<String, byte[]>(t, "k", null);
                r.headers().add("h", "1".getBytes()).add("h", "2".getBytes()).add(new RecordHeader("e", new byte[0]));
                p.send(r).get();
                p.send(new ProducerRecord<>(t, null, new byte[0])).get();
            }
            var got = read(t, 0, 2);
            List<String> headers = new ArrayList<>();
            got.get(0).headers().forEach(h -> headers.add(h.key() + "=" + new String(h.value())));
            equal(got.get(0).key() + got.get(0).value() + headers, "knull[h=1, h=2, e=]");
            equal(got.get(1).key() + got.get(1).value().length, "null0");
        });
        CASES.put("produce-large-batch", () -> {
            String t = topic("large", 1);
            try (var p = producer("batch.size", "1000000", "linger.ms", "500")) {
                for (int i = 0; i < 3000; i++) p.send(new ProducerRecord<>(t, new byte[1000]));
                p.send(new ProducerRecord<>(t, new byte[900000])).get(40, TimeUnit.SECONDS);
            }
            equal(read(t, 0, 3001).get(3000).value().length, 900000);
        });
        CASES.put("transactions", () -> {
            String t = topic("txn", 1);
            try (var p = producer("transactional.id", name("txn"), "max.block.ms", "30000")) {
                p.initTransactions();
                for (String word : List.of("no", "yes")) {
                    p.beginTransaction();
                    p.send(new ProducerRecord<>(t, word.getBytes()));
                    p.flush();
                    if (word.equals("yes")) p.commitTransaction(); else p.abortTransaction();
                }
            }
            equal(values(read(t, 0, 1, "isolation.level", "read_committed")), List.of("yes"));
        });
    }

    static void consume() {
        CASES.put("consume-earliest", () -> {
            String t = topic("earliest", 1);
            fill(t, 10);
            try (var c = consumer()) {
                c.assign(List.of(new TopicPartition(t, 0)));
                c.seekToBeginning(c.assignment());
                equal(values(take(c, 10)), TEN);
            }
        });
        CASES.put("consume-latest", () -> {
            String t = topic("latest", 1);
            fill(t, 9);
            try (var c = consumer()) {
                c.assign(List.of(new TopicPartition(t, 0)));
                c.seekToEnd(c.assignment());
                equal(c.position(new TopicPartition(t, 0)), 9);
                fill(t, 1);
                equal(take(c, 1).get(0).offset(), 9);
            }
        });
        CASES.put("consume-offset", () -> {
            String t = topic("offset", 1);
            fill(t, 10);
            equal(values(read(t, 7, 3)), TEN.subList(7, 10));
        });
        CASES.put("consume-timestamp", () -> {
            String t = topic("timestamp", 1);
            fill(t, 10);
            var tp = new TopicPartition(t, 0);
            try (var c = consumer()) {
                var found = c.offsetsForTimes(Map.of(tp, BASE + 4500)).get(tp);
                equal(found.offset() + " " + found.timestamp(), "5 " + (BASE + 5000));
                equal(c.offsetsForTimes(Map.of(tp, BASE + 7_200_000)).get(tp), null);
            }
            equal(values(read(t, 5, 5)), TEN.subList(5, 10));
        });
    }

    static KafkaConsumer<String, byte[]> joined(String what, String... more) throws Exception {
        String t = topic(what, 1), g = name("g-" + what);
        fill(t, 10);
        List<String> conf = new ArrayList<>(List.of("group.id", g));
        conf.addAll(List.of(more));
        var c = consumer(conf.toArray(new String[0]));
        c.subscribe(List.of(t));
        equal(values(take(c, 10)), TEN);
        var tp = new TopicPartition(t, 0);
        c.commitSync(Map.of(tp, new OffsetAndMetadata(6, "m")));
        equal(c.committed(Set.of(tp)).get(tp).offset(), 6);
        return c;
    }

    static void resume(String what, String... more) throws Exception {
        joined(what, more).close();
        List<String> conf = new ArrayList<>(List.of("group.id", name("g-" + what)));
        conf.addAll(List.of(more));
        try (var c = consumer(conf.toArray(new String[0]))) {
            c.subscribe(List.of(name(what)));
            equal(values(take(c, 4)), TEN.subList(6, 10));
        }
    }

    static void rebalance(String what, String... more) throws Exception {
        String t = topic(what, 4), g = name("g-" + what);
        List<String> conf = new ArrayList<>(List.of("group.id", g));
        conf.addAll(List.of(more));
        String[] all = conf.toArray(new String[0]);
        try (var one = consumer(all); var two = consumer(all)) {
            one.subscribe(List.of(t));
            until("share of four", () -> { one.poll(Duration.ofMillis(100)); return one.assignment().size() == 4; });
            two.subscribe(List.of(t));
            var other = CompletableFuture.runAsync(() -> { // the first join of a member blocks until the others have joined again
                for (long end = System.nanoTime() + 40_000_000_000L; two.assignment().size() != 2 && System.nanoTime() < end; ) two.poll(Duration.ofMillis(100));
            });
            until("shares of two", () -> { one.poll(Duration.ofMillis(100)); return one.assignment().size() == 2 && other.isDone(); });
            equal(two.assignment().size(), 2);
        }
    }

    static void groups() {
        CASES.put("group-join-commit", () -> joined("join").close());
        CASES.put("group-resume", () -> resume("resume"));
        CASES.put("group-rebalance", () -> rebalance("rebalance", "heartbeat.interval.ms", "500", "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor"));
        CASES.put("group-rebalance-cooperative", () -> rebalance("cooperative", "heartbeat.interval.ms", "500", "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"));
        CASES.put("group-static", () -> joined("static", "group.instance.id", "one").close());
        CASES.put("group-consumer-protocol", () -> resume("kip848", "group.protocol", "consumer"));
        CASES.put("group-consumer-protocol-rebalance", () -> rebalance("kip848-rebalance", "group.protocol", "consumer"));
        CASES.put("group-consumer-protocol-static", () -> joined("kip848-static", "group.protocol", "consumer", "group.instance.id", "one").close());
        CASES.put("group-share", () -> {
            String t = topic("share", 1), g = name("g-share");
            var group = new ConfigResource(ConfigResource.Type.GROUP, g);
            get(ADMIN.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all());
            fill(t, 10);
            try (var c = new KafkaShareConsumer<>(with(Map.of(), "group.id", g), new StringDeserializer(), new ByteArrayDeserializer())) {
                c.subscribe(List.of(t));
                List<String> got = new ArrayList<>();
                until("ten records", () -> { c.poll(Duration.ofMillis(500)).forEach(r -> got.add(new String(r.value()))); return got.size() >= 10; });
                equal(got, TEN);
            }
        });
        CASES.put("admin-list-groups", () -> {
            try (var c = joined("list")) { until("the group", () -> get(ADMIN.listGroups().all()).stream().anyMatch(g -> g.groupId().equals(name("g-list")))); }
        });
        CASES.put("admin-describe-group", () -> {
            String g = name("g-describe");
            try (var c = joined("describe")) {
                var d = get(ADMIN.describeConsumerGroups(List.of(g)).all()).get(g);
                equal(d.groupState() + " " + d.members().size(), "Stable 1");
                equal(get(ADMIN.listConsumerGroupOffsets(g).partitionsToOffsetAndMetadata()).get(new TopicPartition(name("describe"), 0)).offset(), 6);
            }
        });
        CASES.put("admin-delete-group", () -> {
            joined("delete").close();
            get(ADMIN.deleteConsumerGroups(List.of(name("g-delete"))).all());
            until("deletion", () -> get(ADMIN.listGroups().all()).stream().noneMatch(g -> g.groupId().equals(name("g-delete"))));
        });
    }

    static String retention(String t) throws Exception {
        var r = new ConfigResource(ConfigResource.Type.TOPIC, t);
        return get(ADMIN.describeConfigs(List.of(r)).all()).get(r).get("retention.ms").value();
    }

    static void administer() {
        CASES.put("metadata", () -> {
            String t = topic("metadata", 3);
            try (var c = consumer()) { equal(c.partitionsFor(t).size(), 3); }
        });
        CASES.put("admin-create-topic", () -> {
            String t = topic("created", 2);
            try {
                get(ADMIN.createTopics(List.of(new NewTopic(t, 2, REPLICAS))).all());
                throw new AssertionError("the same topic twice was no error");
            } catch (ExecutionException e) { equal(e.getCause().getClass(), TopicExistsException.class); }
        });
        CASES.put("admin-create-partitions", () -> {
            String t = topic("grow", 1);
            get(ADMIN.createPartitions(Map.of(t, NewPartitions.increaseTo(3))).all());
            until("three partitions", () -> get(ADMIN.describeTopics(List.of(t)).allTopicNames()).get(t).partitions().size() == 3);
        });
        CASES.put("admin-delete-topic", () -> {
            String t = topic("gone", 1);
            get(ADMIN.deleteTopics(List.of(t)).all());
            until("deletion", () -> !get(ADMIN.listTopics().names()).contains(t));
        });
        CASES.put("admin-describe-cluster", () -> equal(get(ADMIN.describeCluster().nodes()).size(), REPLICAS));
        CASES.put("admin-describe-configs", () -> {
            String t = topic("configs", 1);
            until("value", () -> { // a node may not have heard of the topic yet
                try { return retention(t).equals("604800000"); }
                catch (ExecutionException e) { return false; }
            });
        });
        CASES.put("admin-alter-configs", () -> {
            String t = topic("alter", 1);
            var r = new ConfigResource(ConfigResource.Type.TOPIC, t);
            get(ADMIN.incrementalAlterConfigs(Map.of(r, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET)))).all());
            until("the new value", () -> retention(t).equals("7200000"));
        });
        CASES.put("admin-offsets-by-time", () -> {
            String t = topic("bytime", 1);
            fill(t, 10);
            var tp = new TopicPartition(t, 0);
            for (var want : Map.of(OffsetSpec.forTimestamp(BASE + 4500), 5, OffsetSpec.earliest(), 0, OffsetSpec.latest(), 10, OffsetSpec.maxTimestamp(), 9).entrySet())
                equal(get(ADMIN.listOffsets(Map.of(tp, want.getKey())).partitionResult(tp)).offset(), want.getValue());
        });
        CASES.put("admin-delete-records", () -> {
            String t = topic("records", 1);
            fill(t, 10);
            var tp = new TopicPartition(t, 0);
            equal(get(ADMIN.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(tp)).lowWatermark(), 4);
            equal(values(read(t, 4, 6)), TEN.subList(4, 10));
        });
    }

    static void say(String... fields) {
        System.out.println(String.join("\t", Arrays.stream(fields).map(f -> f.replaceAll("\\s+", " ")).toList()));
    }

    public static void main(String[] args) {
        produce();
        consume();
        groups();
        administer();
        say("version", System.getenv("CARD_VERSION"));
        Set<String> wanted = new HashSet<>(Arrays.asList(System.getenv().getOrDefault("CARD_CASES", "").trim().split(" +")));
        wanted.remove("");
        ExecutorService threads = Executors.newCachedThreadPool();
        CASES.forEach((what, body) -> {
            if (!wanted.isEmpty() && !wanted.contains(what)) return;
            try {
                threads.submit(() -> { body.run(); return null; }).get(90, TimeUnit.SECONDS);
                say("pass", what);
            } catch (TimeoutException e) {
                say("fail", what, "not done within 90 s");
            } catch (Exception e) {
                Throwable cause = e.getCause() instanceof ExecutionException x ? x.getCause() : e.getCause();
                say("fail", what, String.valueOf(cause));
            }
        });
        Runtime.getRuntime().halt(0); // clients of a case that failed would wait
    }
}
