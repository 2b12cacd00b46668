// A story told by KafkaJS against a broker; prints one line of JSON with what happened in each step.
// node kafkajs_story.js <folder with node_modules> <bootstrap server> <topic>
'use strict'

const { createRequire } = require('module')
const path = require('path')

const [folder, broker, topic] = process.argv.slice(2)
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } =
  createRequire(path.join(folder, 'package.json'))('kafkajs')

const RECORDS = 300
const DEADLINE_MS = 45000
const kafka = new Kafka({ clientId: 'story', brokers: [broker], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } })
const happened = {}

const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString())

const until = async (condition, what) => {
  const end = Date.now() + DEADLINE_MS
  while (!condition()) {
    if (Date.now() > end) throw new Error(what)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

const topics = async (admin) => {
  await admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '4711' }] }] })
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  const { topics: [metadata] } = await admin.fetchTopicMetadata({ topics: [topic] })
  happened.leaders = metadata.partitions.map((partition) => partition.leader)
  const cluster = await admin.describeCluster()
  happened.cluster = { brokers: cluster.brokers.length, controller: cluster.controller }
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'segment.bytes', value: '2000000' }] }] })
  const { resources: [described] } = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['segment.bytes', 'retention.ms'] }] })
  happened.configs = Object.fromEntries(described.configEntries.map((entry) => [entry.configName, entry.configValue]))
}

const producing = async () => {
  const plain = kafka.producer({ allowAutoTopicCreation: false })
  await plain.connect()
  const settings = [{ acks: 0 }, { acks: 1 }, { acks: -1 }, { acks: -1, compression: CompressionTypes.GZIP }]
  for (const [index, setting] of settings.entries()) {
    await plain.send({ topic, ...setting, messages: [{ partition: 0, key: null, value: `plain ${index}`, headers: { source: 'story' } }] })
  }
  await plain.send({ topic, messages: [{ partition: 0, key: 'tombstone', value: null }] })
  await plain.disconnect()
  const idempotent = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await idempotent.connect()
  const messages = Array.from({ length: RECORDS }, (_, number) => ({ partition: number % 3, value: `${number}` }))
  happened.baseOffsets = (await idempotent.send({ topic, messages })).map((sent) => sent.baseOffset).sort()
  await idempotent.disconnect()
}

// A member of the group `topic`; `seen` gets what it reads.
const member = async (seen, joined) => {
  const consumer = kafka.consumer({ groupId: topic, sessionTimeout: 10000, heartbeatInterval: 200, maxWaitTimeInMs: 100 })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => joined.push((payload.memberAssignment[topic] || []).length))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: true,
    autoCommitThreshold: 50,
    eachMessage: async ({ partition, message }) => {
      seen.push({ partition, offset: message.offset, key: text(message.key), value: text(message.value), source: message.headers.source && text(message.headers.source) })
    }
  })
  return consumer
}

const groups = async (admin) => {
  const seen = []
  const [firstJoined, secondJoined] = [[], []]
  const first = await member(seen, firstJoined)
  await until(() => seen.length >= RECORDS + 5, 'not everything was read')
  const second = await member(seen, secondJoined)
  await until(() => secondJoined.length > 0 && secondJoined.at(-1) > 0 && firstJoined.at(-1) + secondJoined.at(-1) === 3, 'two members do not share')
  await second.disconnect()
  await until(() => firstJoined.at(-1) === 3, 'who is left does not take over')
  const { groups: [described] } = await admin.describeGroups([topic])
  happened.group = { state: described.state, protocolType: described.protocolType, members: described.members.length }
  await first.disconnect()
  happened.distinct = new Set(seen.map((record) => `${record.partition}-${record.offset}`)).size
  happened.read = seen.length
  happened.plain = seen.filter((record) => record.value === null || record.value.startsWith('plain')).map(({ key, value, source }) => [key, value, source || null])
  const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
  happened.committed = partitions.sort((a, b) => a.partition - b.partition).map((partition) => partition.offset)
}

const offsets = async (admin) => {
  const ends = await admin.fetchTopicOffsets(topic)
  happened.ends = ends.sort((a, b) => a.partition - b.partition).map((end) => [end.low, end.high])
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: '40' }] })
  const after = await admin.fetchTopicOffsets(topic)
  happened.deleted = after.find((end) => end.partition === 1).low
  await admin.setOffsets({ groupId: topic, topic, partitions: [{ partition: 0, offset: '7' }] })
  const [{ partitions: [moved] }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
  happened.moved = moved.offset
  happened.listed = (await admin.listGroups()).groups.some((group) => group.groupId === topic)
  await admin.deleteGroups([topic])
  await admin.deleteTopics({ topics: [topic] })
  happened.gone = !(await admin.listTopics()).includes(topic)
}

const main = async () => {
  const admin = kafka.admin()
  await admin.connect()
  await topics(admin)
  await producing()
  await groups(admin)
  await offsets(admin)
  await admin.disconnect()
  process.stdout.write(JSON.stringify(happened) + '\n')
}

main().then(() => process.exit(0), (error) => {
  process.stderr.write(`${error.stack}\nuntil then: ${JSON.stringify(happened)}\n`)
  process.exit(1)
})
