// SPDX-License-Identifier: Apache-2.0

//! The cases of rskafka: a client of single partitions, without groups.

use chrono::{DateTime, Duration, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};
use std::collections::BTreeMap;
use std::env::var;
use std::future::Future;

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;
type Tried<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn replicas() -> usize {
    var("CARD_REPLICAS").ok().and_then(|s| s.parse().ok()).unwrap_or(3)
}

fn equal<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("got {got:?} want {want:?}").chars().take(200).collect::<String>().into()) }
}

async fn client() -> Tried<Client> {
    Ok(ClientBuilder::new(var("CARD_BOOTSTRAP")?.split(',').map(String::from).collect()).build().await?)
}

async fn topic(what: &str, partitions: i32) -> Tried<String> {
    let name = format!("{}-{what}", var("CARD_RUN")?);
    client().await?.controller_client()?.create_topic(&name, partitions, replicas() as i16, 30_000).await?;
    Ok(name)
}

async fn partition(topic: &str) -> Tried<PartitionClient> {
    Ok(client().await?.partition_client(topic, 0, UnknownTopicHandling::Retry).await?)
}

fn record(key: Option<&str>, value: Option<Vec<u8>>, timestamp: DateTime<Utc>) -> Record {
    Record { key: key.map(|k| k.as_bytes().to_vec()), value, headers: BTreeMap::new(), timestamp }
}

/// The time of the first record: recent, as retention goes by it.
fn base() -> DateTime<Utc> {
    static BASE: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
    let millis = BASE.get_or_init(|| (Utc::now() - Duration::hours(1)).timestamp_millis());
    DateTime::from_timestamp_millis(*millis).unwrap()
}

async fn filled(what: &str, compression: Compression) -> Tried<PartitionClient> {
    let p = partition(&topic(what, 1).await?).await?;
    let all = (0..10).map(|i| record(None, Some(format!("v{i}").into_bytes()), base() + Duration::seconds(i))).collect();
    equal(p.produce(all, compression).await?, (0..10).collect())?;
    Ok(p)
}

async fn read(p: &PartitionClient, from: i64, n: usize) -> Tried<Vec<RecordAndOffset>> {
    let mut got: Vec<RecordAndOffset> = vec![];
    while got.len() < n {
        let at = got.last().map_or(from, |r| r.offset + 1);
        got.extend(p.fetch_records(at, 1..10_000_000, 500).await?.0);
    }
    Ok(got)
}

async fn expect(p: &PartitionClient, from: i64) -> Outcome {
    let got = read(p, from, (10 - from) as usize).await?;
    let values: Vec<_> = got.iter().map(|r| String::from_utf8_lossy(r.record.value.as_deref().unwrap_or(b"null")).into_owned()).collect();
    equal(values, (from..10).map(|i| format!("v{i}")).collect())
}

async fn case<F: Future<Output = Outcome>>(name: &str, body: F) {
    match tokio::time::timeout(std::time::Duration::from_secs(60), body).await {
        Ok(Ok(())) => println!("pass\t{name}"),
        Ok(Err(e)) => println!("fail\t{name}\t{}", e.to_string().replace(['\n', '\t'], " ")),
        Err(_) => println!("fail\t{name}\tnot done within a minute"),
    }
}

async fn topics() -> Tried<Vec<(String, usize)>> {
    Ok(client().await?.list_topics().await?.into_iter().map(|t| (t.name, t.partitions.len())).collect())
}

async fn metadata() -> Outcome {
    let t = topic("metadata", 3).await?;
    while !topics().await?.contains(&(t.clone(), 3)) {}
    Ok(())
}

async fn nulls() -> Outcome {
    let p = partition(&topic("nulls", 1).await?).await?;
    let mut a = record(Some("k"), None, base());
    a.headers = BTreeMap::from([("h".into(), b"1".to_vec()), ("e".into(), vec![])]);
    let sent = vec![a, record(None, Some(vec![]), base())];
    p.produce(sent.clone(), Compression::NoCompression).await?;
    equal(read(&p, 0, 2).await?.into_iter().map(|r| r.record).collect::<Vec<_>>(), sent)
}

async fn large() -> Outcome {
    let p = partition(&topic("large", 1).await?).await?;
    p.produce((0..900).map(|_| record(None, Some(vec![0; 1000]), base())).collect(), Compression::NoCompression).await?;
    p.produce(vec![record(None, Some(vec![0; 900_000]), base())], Compression::NoCompression).await?;
    equal(read(&p, 0, 901).await?[900].record.value.as_ref().map(Vec::len), Some(900_000))
}

async fn by_time(what: &str) -> Tried<(PartitionClient, i64)> {
    let p = filled(what, Compression::NoCompression).await?;
    let offset = p.get_offset(OffsetAt::Timestamp(base() + Duration::milliseconds(4500))).await?;
    equal(offset, 5)?;
    Ok((p, offset))
}

async fn latest() -> Outcome {
    let p = filled("latest", Compression::NoCompression).await?;
    equal(p.get_offset(OffsetAt::Latest).await?, 10)
}

async fn earliest() -> Outcome {
    let p = filled("earliest", Compression::NoCompression).await?;
    equal(p.get_offset(OffsetAt::Earliest).await?, 0)?;
    expect(&p, 0).await
}

async fn delete_topic() -> Outcome {
    let t = topic("gone", 1).await?;
    client().await?.controller_client()?.delete_topic(&t, 30_000).await?;
    while topics().await?.iter().any(|(name, _)| *name == t) {}
    Ok(())
}

async fn delete_records() -> Outcome {
    let p = filled("records", Compression::NoCompression).await?;
    p.delete_records(4, 30_000).await?;
    equal(p.get_offset(OffsetAt::Earliest).await?, 4)?;
    expect(&p, 4).await
}

#[tokio::main]
async fn main() {
    println!("version\t{}", var("CARD_VERSION").unwrap_or_default());
    case("metadata", metadata()).await;
    let codecs = [
        ("none", Compression::NoCompression), ("gzip", Compression::Gzip), ("snappy", Compression::Snappy), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd),
    ];
    for (name, compression) in codecs {
        let what = format!("codec-{name}");
        case(&what, async { expect(&filled(&what, compression).await?, 0).await }).await;
    }
    case("produce-keys-headers-nulls", nulls()).await;
    case("produce-large-batch", large()).await;
    case("consume-earliest", earliest()).await;
    case("consume-latest", latest()).await;
    case("consume-offset", async { expect(&filled("offset", Compression::NoCompression).await?, 7).await }).await;
    case("consume-timestamp", async {
        let (p, offset) = by_time("timestamp").await?;
        expect(&p, offset).await
    }).await;
    case("admin-create-topic", async { topic("created", 2).await.map(|_| ()) }).await;
    case("admin-delete-topic", delete_topic()).await;
    case("admin-offsets-by-time", async { by_time("bytime").await.map(|_| ()) }).await;
    case("admin-delete-records", delete_records()).await;
    for name in ["produce-acks-0", "produce-acks-1", "produce-idempotent", "transactions", "group-join-commit"] {
        println!("none\t{name}\tno such calls");
    }
}
