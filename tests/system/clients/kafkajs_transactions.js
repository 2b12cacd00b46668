// Transactions of KafkaJS against a broker; prints one line of JSON with what happened in each step.
// node kafkajs_transactions.js <folder with node_modules> <bootstrap server> <source topic> <target topic>
'use strict'

const { createRequire } = require('module')
const path = require('path')

const [folder, broker, source, target] = process.argv.slice(2)
const { Kafka, logLevel } = createRequire(path.join(folder, 'package.json'))('kafkajs')

const kafka = new Kafka({ clientId: 'transactions', brokers: [broker], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } })
const happened = {}

const transactional = async (transactionalId) => {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  return producer
}

const failure = (promise) => promise.then(() => 'nothing', (error) => error.type || error.name)

const both = (value) => ({ topic: target, messages: [0, 1].map((partition) => ({ partition, value })) })

const commitsAndAborts = async (producer) => {
  for (const [value, commit] of [['first', true], ['undone', false], ['second', true]]) {
    const transaction = await producer.transaction()
    await transaction.send(both(value))
    await (commit ? transaction.commit() : transaction.abort())
  }
  const empty = await producer.transaction()
  await empty.commit()
}

// Reads `source` as a group, and writes it to `target` in transactions that commit the group's offsets.
const copies = async (producer, admin) => {
  const consumer = kafka.consumer({ groupId: source, readUncommitted: false, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  let copied = 0
  let aborted = false
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch, resolveOffset }) => {
        const offset = (BigInt(batch.lastOffset()) + 1n).toString()
        const send = async (transaction) => {
          await transaction.send({ topic: target, messages: batch.messages.map(({ value }) => ({ partition: 0, value: `copy ${value}` })) })
          await transaction.sendOffsets({ consumerGroupId: source, topics: [{ topic: source, partitions: [{ partition: 0, offset }] }] })
        }
        if (!aborted) {
          const undone = await producer.transaction()
          await send(undone)
          await undone.abort()
          aborted = true
          const [{ partitions }] = await admin.fetchOffsets({ groupId: source, topics: [source] })
          happened.afterAbort = partitions[0].offset
        }
        const transaction = await producer.transaction()
        await send(transaction)
        await transaction.commit()
        resolveOffset(batch.lastOffset())
        copied += batch.messages.length
        if (copied === 12) resolve()
      }
    }).catch(reject)
  })
  await consumer.disconnect()
  const [{ partitions }] = await admin.fetchOffsets({ groupId: source, topics: [source] })
  happened.committed = partitions.map((partition) => partition.offset)
}

const fenced = async (producer, id) => {
  const transaction = await producer.transaction()
  await transaction.send(both('of a zombie'))
  const heir = await transactional(id)
  const next = await heir.transaction()
  happened.send = await failure(transaction.send(both('of a zombie')))
  await next.send(both('third'))
  await next.commit()
  await heir.disconnect()
}

const main = async () => {
  const admin = kafka.admin()
  await admin.connect()
  const id = `${target}-id`
  const producer = await transactional(id)
  await commitsAndAborts(producer)
  await copies(producer, admin)
  await fenced(producer, id)
  await admin.disconnect()
  process.stdout.write(JSON.stringify(happened) + '\n')
}

main().then(() => process.exit(0), (error) => {
  process.stderr.write(`${error.stack}\nuntil then: ${JSON.stringify(happened)}\n`)
  process.exit(1)
})
