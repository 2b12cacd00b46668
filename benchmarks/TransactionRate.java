import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Commits transactions one after the other: BOOTSTRAP TOPIC PARTITIONS RECORDS WARM-UP-SECONDS SECONDS. */
public class TransactionRate {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        int records = Integer.parseInt(arguments[3]);
        double warmUp = Double.parseDouble(arguments[4]);
        double seconds = Double.parseDouble(arguments[5]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "transactional.id", UUID.randomUUID().toString());
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            producer.initTransactions();
            run(producer, topic, partitions, records, warmUp);
            System.out.println("warm");
            System.in.read();
            double begin = System.nanoTime();
            long count = run(producer, topic, partitions, records, seconds);
            System.out.println(count + " " + (System.nanoTime() - begin) / TimeUnit.SECONDS.toNanos(1));
        } catch (Exception error) {
            // The launcher of single files trips over exceptions without frames of its own, and hides them.
            error.printStackTrace();
            System.exit(1);
        }
    }

    /** For so many seconds; how many transactions were committed. */
    private static long run(
            KafkaProducer<byte[], byte[]> producer, String topic, int partitions, int records, double seconds) {
        byte[] value = new byte[100];
        long end = System.nanoTime() + (long) (seconds * TimeUnit.SECONDS.toNanos(1));
        long count = 0;
        for (; System.nanoTime() < end; count++) {
            producer.beginTransaction();
            for (int record = 0; record < records; record++) {
                int partition = (int) ((count + record) % partitions);
                producer.send(new ProducerRecord<>(topic, partition, null, value));
            }
            // Without this the client may send the end before the records: see "Transactions" in NON_OBVIOUS.md.
            producer.flush();
            producer.commitTransaction();
        }
        return count;
    }
}
