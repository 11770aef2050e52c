// SPDX-License-Identifier: Apache-2.0

// The cases of kafkajs. It has no idempotent producer that is on by default, and no static members.
const assert = require('node:assert/strict')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const lz4 = require('lz4js')
const { ZstdCodec } = require('zstd-codec')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})

const replicas = Number(process.env.CARD_REPLICAS || 3)
const base = Date.now() - 3600000 // recent, as retention goes by it
const kafka = new Kafka({ clientId: 'card', brokers: process.env.CARD_BOOTSTRAP.split(','), logLevel: logLevel.NOTHING })
const name = (what) => `${process.env.CARD_RUN}-${what}`
const ten = [...Array(10).keys()].map((i) => `v${i}`)
const cases = []
const test = (what, fn) => cases.push([what, fn])
const none = (what, why) => cases.push([what, null, why])
const wait = (ms) => new Promise((done) => setTimeout(done, ms))

async function until(what, holds, seconds = 30) {
  for (const end = Date.now() + seconds * 1000; !(await holds());) {
    assert.ok(Date.now() < end, `no ${what} within ${seconds} s`)
    await wait(100)
  }
}

async function withAdmin(fn) {
  const admin = kafka.admin()
  await admin.connect()
  try { return await fn(admin) } finally { await admin.disconnect() }
}

async function topic(what, numPartitions = 1) {
  const t = name(what)
  await withAdmin(async (a) => {
    await a.createTopics({ topics: [{ topic: t, numPartitions, replicationFactor: replicas }] })
    await until(`topic ${t}`, async () => (await a.listTopics()).includes(t))
  })
  return t
}

async function send(t, messages, options = {}, settings = {}) {
  const p = kafka.producer(settings)
  await p.connect()
  try { await p.send({ topic: t, messages, ...options }) } finally { await p.disconnect() }
}

const fill = (t, options, settings) =>
  send(t, ten.map((value, i) => ({ value, partition: 0, timestamp: String(base + i * 1000) })), options, settings)

// consume starts a member of a group; got fills with what it reads.
async function consume(t, { group = name(`g-${t}`), fromBeginning = true, from, commit, isolation } = {}) {
  const c = kafka.consumer({ groupId: group, heartbeatInterval: 500, sessionTimeout: 10000, rebalanceTimeout: 10000, readUncommitted: isolation === 'no', maxWaitTimeInMs: 500 })
  const got = [], self = { got, share: 0, stop: () => c.disconnect() }
  c.on(c.events.GROUP_JOIN, (e) => { self.share = (e.payload.memberAssignment[t] || []).length })
  await c.connect()
  await c.subscribe({ topics: [t], fromBeginning })
  await c.run({
    autoCommit: false,
    eachMessage: async ({ message, partition }) => {
      got.push(message)
      if (commit !== undefined && Number(message.offset) + 1 === commit) {
        await c.commitOffsets([{ topic: t, partition, offset: String(commit) }])
        self.committed = true
      }
    },
  })
  if (from !== undefined) c.seek({ topic: t, partition: 0, offset: String(from) })
  return self
}

async function read(t, n, options) {
  const c = await consume(t, options)
  try {
    await until(`${n} records`, () => c.got.length >= n, 40)
    return c.got
  } finally { await c.stop() }
}

const values = (got) => got.map((m) => m.value.toString())

for (const [what, acks] of [['0', 0], ['1', 1], ['all', -1]]) {
  test(`produce-acks-${what}`, async () => {
    const t = await topic(`acks-${what}`)
    await send(t, [{ value: 'first' }]) // the leader is there: without acknowledgements the client would not know
    await fill(t, { acks })
    assert.deepEqual(values(await read(t, 11)).slice(1), ten)
  })
}
for (const what of ['None', 'GZIP', 'Snappy', 'LZ4', 'ZSTD']) {
  test(`codec-${what.toLowerCase()}`, async () => {
    const t = await topic(`codec-${what}`)
    await fill(t, { compression: CompressionTypes[what] })
    assert.deepEqual(values(await read(t, 10)), ten)
  })
}
test('produce-idempotent', async () => {
  const t = await topic('idempotent')
  await fill(t, {}, { idempotent: true })
  assert.deepEqual(values(await read(t, 10)), ten)
})
test('produce-keys-headers-nulls', async () => {
  const t = await topic('nulls')
  await send(t, [{ key: 'k', value: null, headers: { h: ['1', '2'], e: '' } }, { key: null, value: '' }])
  const [a, b] = await read(t, 2)
  assert.deepEqual([a.key.toString(), a.value, a.headers.h.map(String), String(a.headers.e)], ['k', null, ['1', '2'], ''])
  assert.deepEqual([b.key, b.value.length], [null, 0])
})
test('produce-large-batch', async () => {
  const t = await topic('large')
  for (let i = 0; i < 4; i++) await send(t, Array(800).fill({ value: Buffer.alloc(1000) }))
  await send(t, [{ value: Buffer.alloc(900000) }])
  assert.equal((await read(t, 3201))[3200].value.length, 900000)
})
test('transactions', async () => {
  const t = await topic('txn')
  const p = kafka.producer({ transactionalId: name('txn'), maxInFlightRequests: 1, idempotent: true, retry: { retries: 3 } })
  await p.connect()
  for (const word of ['no', 'yes']) {
    const txn = await p.transaction()
    await txn.send({ topic: t, messages: [{ value: word }] })
    await (word === 'yes' ? txn.commit() : txn.abort())
  }
  await p.disconnect()
  assert.deepEqual(values(await read(t, 1)), ['yes'])
})
test('consume-earliest', async () => {
  const t = await topic('earliest')
  await fill(t)
  assert.deepEqual(values(await read(t, 10)), ten)
})
test('consume-latest', async () => {
  const t = await topic('latest', 1)
  await fill(t)
  const c = await consume(t, { fromBeginning: false })
  await until('assignment', () => c.share === 1)
  await wait(2000) // the client tells nobody when it has looked up the end
  await send(t, [{ value: 'new' }])
  await until('the new record', () => c.got.length > 0)
  await c.stop()
  assert.deepEqual(values(c.got), ['new'])
})
test('consume-offset', async () => {
  const t = await topic('offset')
  await fill(t)
  const got = await read(t, 3, { from: 7 })
  assert.deepEqual(values(got).slice(-3), ten.slice(7))
})
test('consume-timestamp', async () => {
  const t = await topic('timestamp')
  await fill(t)
  const [{ offset }] = await withAdmin((a) => a.fetchTopicOffsetsByTimestamp(t, base + 4500))
  assert.equal(offset, '5')
  assert.deepEqual(values(await read(t, 5, { from: offset })).slice(-5), ten.slice(5))
})

async function joined(what, fn) {
  const t = await topic(what), group = name(`g-${what}`)
  await fill(t)
  const c = await consume(t, { group, commit: 6 })
  try {
    await until('ten records and a commit', () => c.got.length === 10 && c.committed, 40)
    await withAdmin(async (a) => {
      const [{ partitions }] = await a.fetchOffsets({ groupId: group, topics: [t] })
      assert.equal(partitions[0].offset, '6')
      if (fn) await fn(a, group)
    })
  } finally { await c.stop() }
  return { t, group }
}
test('group-join-commit', () => joined('join'))
test('group-resume', async () => {
  const { t, group } = await joined('resume')
  assert.deepEqual(values(await read(t, 4, { group })), ten.slice(6))
})
test('group-rebalance', async () => {
  const t = await topic('rebalance', 4), group = name('g-rebalance')
  const one = await consume(t, { group })
  await until('share of four', () => one.share === 4)
  const two = await consume(t, { group })
  await until('shares of two', () => one.share === 2 && two.share === 2, 40)
  await Promise.all([one.stop(), two.stop()])
})
none('group-static', 'no group instance id')
test('metadata', () => withAdmin(async (a) => {
  const t = await topic('metadata', 3)
  const { topics } = await a.fetchTopicMetadata({ topics: [t] })
  assert.equal(topics[0].partitions.length, 3)
}))
test('admin-create-topic', () => withAdmin(async (a) => {
  const t = await topic('created', 2)
  assert.equal(await a.createTopics({ topics: [{ topic: t, numPartitions: 2, replicationFactor: replicas }] }), false)
}))
test('admin-create-partitions', () => withAdmin(async (a) => {
  const t = await topic('grow')
  await a.createPartitions({ topicPartitions: [{ topic: t, count: 3 }] })
  await until('three partitions', async () => (await a.fetchTopicMetadata({ topics: [t] })).topics[0].partitions.length === 3)
}))
test('admin-delete-topic', () => withAdmin(async (a) => {
  const t = await topic('gone')
  await a.deleteTopics({ topics: [t] })
  await until('deletion', async () => !(await a.listTopics()).includes(t))
}))
test('admin-describe-cluster', () => withAdmin(async (a) => assert.equal((await a.describeCluster()).brokers.length, replicas)))
const retention = async (a, t) => {
  const { resources } = await a.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: t, configNames: ['retention.ms'] }] })
  return resources[0].configEntries[0].configValue
}
test('admin-describe-configs', () => withAdmin(async (a) => assert.equal(await retention(a, await topic('configs')), '604800000')))
test('admin-alter-configs', () => withAdmin(async (a) => {
  const t = await topic('alter')
  await a.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: t, configEntries: [{ name: 'retention.ms', value: '7200000' }] }] })
  await until('the new value', async () => (await retention(a, t)) === '7200000')
}))
test('admin-list-groups', () => joined('list', async (a, g) => assert.ok((await a.listGroups()).groups.some((x) => x.groupId === g))))
test('admin-describe-group', () => joined('describe', async (a, g) => assert.equal((await a.describeGroups([g])).groups[0].state, 'Stable')))
test('admin-delete-group', async () => {
  const { group } = await joined('delete')
  await withAdmin(async (a) => {
    await a.deleteGroups([group])
    assert.ok(!(await a.listGroups()).groups.some((x) => x.groupId === group))
  })
})
test('admin-offsets-by-time', () => withAdmin(async (a) => {
  const t = await topic('bytime')
  await fill(t)
  assert.equal((await a.fetchTopicOffsetsByTimestamp(t, base + 4500))[0].offset, '5')
  assert.deepEqual([(await a.fetchTopicOffsets(t))[0].low, (await a.fetchTopicOffsets(t))[0].high], ['0', '10'])
}))
test('admin-delete-records', () => withAdmin(async (a) => {
  const t = await topic('records')
  await fill(t)
  await a.fetchTopicOffsets(t) // deleteTopicRecords does not look the topic up itself
  await a.deleteTopicRecords({ topic: t, partitions: [{ partition: 0, offset: '4' }] })
  assert.equal((await a.fetchTopicOffsets(t))[0].low, '4')
}))

const line = (...fields) => console.log(fields.map((f) => String(f).split(/\s+/).join(' ')).join('\t'))

async function main() {
  line('version', process.env.CARD_VERSION)
  const wanted = (process.env.CARD_CASES || '').split(' ').filter(Boolean)
  for (const [what, fn, why] of cases) {
    if (wanted.length && !wanted.includes(what)) continue
    if (!fn) { line('none', what, why); continue }
    const late = wait(70000).then(() => { throw new Error('not done within 70 s') })
    late.catch(() => {})
    try {
      await Promise.race([fn(), late])
      line('pass', what)
    } catch (e) { line('fail', what, String(e.message).slice(0, 300)) }
  }
  process.exit(0)
}

process.on('unhandledRejection', () => {}) // of a client whose case has failed already
ZstdCodec.run((zstd) => {
  const simple = new zstd.Simple()
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(simple.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(simple.decompress(buffer)),
  })
  main()
})
