import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/** Reads all batches of the first file, checks them, and writes their records as one batch per codec to the second. */
public class BatchOracle {
    public static void main(String[] arguments) throws Exception {
        ByteBuffer input = ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0])));
        List<Record> records = new ArrayList<>();
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(input).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                records.add(record);
            }
        }
        try (FileChannel output = FileChannel.open(
                Path.of(arguments[1]), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            for (CompressionType type : CompressionType.values()) {
                MemoryRecordsBuilder builder = MemoryRecords.builder(
                    ByteBuffer.allocate(1 << 20), RecordBatch.CURRENT_MAGIC_VALUE, Compression.of(type).build(),
                    TimestampType.CREATE_TIME, records.get(0).offset());
                for (Record record : records)
                    builder.appendWithOffset(record.offset(), record);
                ByteBuffer batch = builder.build().buffer();
                while (batch.hasRemaining())
                    output.write(batch);
            }
        }
    }
}
