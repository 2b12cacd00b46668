import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

/** Reads lines of "Message version hex" and writes each message again as Kafka's own class has understood it. */
public class MessageOracle {
    public static void main(String[] arguments) throws Exception {
        List<String> output = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            ByteBuffer input = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            Message message = (Message) Class.forName("org.apache.kafka.common.message." + words[0] + "Data")
                .getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(input), version);
            if (input.hasRemaining())
                throw new IllegalStateException(line + ": " + input.remaining() + " bytes not read");
            ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[written.remaining()];
            written.get(bytes);
            output.add(HexFormat.of().formatHex(bytes));
        }
        Files.write(Path.of(arguments[1]), output);
    }
}
