import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

/** What Kafka Streams (exactly_once_v2) asks a cluster, and what it does to producers and members; a line for each
 * answer. */
public class StreamsCalls {
  interface Call { Object run() throws Exception; }

  static String servers;

  static void tell(String what, Call call) {
    String told;
    try {
      Object answer = call.run();
      told = answer == null ? "done" : answer.toString();
    } catch (ExecutionException error) {
      told = error.getCause().getClass().getSimpleName();
    } catch (Exception error) {
      told = error.getClass().getSimpleName();
    }
    System.out.println(what + ": " + told);
  }

  static Map<String, Object> settings(Object... pairs) {
    Map<String, Object> made = new HashMap<>(Map.of("bootstrap.servers", servers));
    for (int i = 0; i < pairs.length; i += 2) made.put((String) pairs[i], pairs[i + 1]);
    return made;
  }

  static KafkaProducer<String, String> producer(String id) {
    return new KafkaProducer<>(settings("transactional.id", id, "transaction.timeout.ms", 10000, "max.block.ms", 8000,
        "enable.metrics.push", false), new StringSerializer(), new StringSerializer());
  }

  static KafkaConsumer<String, String> consumer(String instance) {
    Map<String, Object> made = settings("group.id", "app", "isolation.level", "read_committed",
        "auto.offset.reset", "earliest",
        "enable.auto.commit", false, "session.timeout.ms", 10000, "heartbeat.interval.ms", 100,
            "metadata.max.age.ms", 300,
        "allow.auto.create.topics", false, "internal.leave.group.on.close", false);
    if (instance != null) made.put("group.instance.id", instance);
    return new KafkaConsumer<>(made, new StringDeserializer(), new StringDeserializer());
  }

  static List<String> poll(KafkaConsumer<String, String> consumer, int count) {
    List<String> values = new ArrayList<>();
    long end = System.currentTimeMillis() + 15000;
    while (values.size() < count && System.currentTimeMillis() < end)
      consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
    return values;
  }

  static <T> T get(KafkaFuture<T> future) throws Exception {
    return future.get(20, TimeUnit.SECONDS);
  }

  public static void main(String[] arguments) throws Exception {
    servers = arguments[0];
    Admin admin = Admin.create(settings("default.api.timeout.ms", 15000, "request.timeout.ms", 10000));
    Map<String, Map<String, String>> internal = new LinkedHashMap<>();
    internal.put("app-by-key-repartition", Map.of("cleanup.policy", "delete", "segment.bytes", "52428800",
        "retention.ms", "-1",
        "message.timestamp.type", "CreateTime"));
    internal.put("app-store-changelog", Map.of("cleanup.policy", "compact", "message.timestamp.type", "CreateTime"));
    internal.put("app-window-changelog", Map.of("cleanup.policy", "compact,delete", "retention.ms", "86460000",
        "message.timestamp.type", "CreateTime"));
    internal.put("app-versioned-changelog", Map.of("cleanup.policy", "compact", "min.compaction.lag.ms", "86400000"));
    internal.put("input", Map.of());
    for (String name : internal.keySet())
      tell("describe " + name, () ->
          get(admin.describeTopics(List.of(name)).topicNameValues().get(name)).partitions().size());
    for (int again = 0; again < 2; again++) {
      List<NewTopic> wanted = new ArrayList<>();
      internal.forEach((name, configs) -> wanted.add(new NewTopic(name, Optional.of(2),
          Optional.of((short) -1)).configs(configs)));
      CreateTopicsResult made = admin.createTopics(wanted);
      for (String name : internal.keySet()) tell("create " + name, () -> get(made.values().get(name)));
    }
    tell("create without a cleanup policy that is known", () -> get(admin.createTopics(List.of(
        new NewTopic("wrong", 1, (short) 1).configs(Map.of("cleanup.policy", "compress")))).all()));
    for (String name : internal.keySet()) {
      ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
      tell("partitions of " + name, () ->
          get(admin.describeTopics(List.of(name)).topicNameValues().get(name)).partitions().size());
      tell("settings of " + name, () -> {
        Config config = get(admin.describeConfigs(List.of(resource)).values().get(resource));
        Map<String, String> told = new TreeMap<>();
        for (String key : List.of("cleanup.policy", "retention.ms", "retention.bytes", "min.compaction.lag.ms",
            "segment.bytes",
            "message.timestamp.type")) told.put(key, config.get(key).value() + " " + config.get(key).source());
        return told;
      });
    }
    ConfigResource nobody = new ConfigResource(ConfigResource.Type.TOPIC, "nobody");
    tell("settings of a topic that is not there", () ->
        get(admin.describeConfigs(List.of(nobody)).values().get(nobody)));

    TopicPartition input = new TopicPartition("input", 0),
        repartition = new TopicPartition("app-by-key-repartition", 0);
    TopicPartition changelog = new TopicPartition("app-store-changelog", 0);
    KafkaProducer<String, String> writer = producer("writer");
    writer.initTransactions();
    writer.beginTransaction();
    for (int i = 0; i < 10; i++) writer.send(new ProducerRecord<>("input", 0, "k", "" + i));
    writer.commitTransaction();

    tell("offsets of a group that is not there", () ->
        get(admin.listConsumerGroupOffsets("app").partitionsToOffsetAndMetadata()));
    KafkaConsumer<String, String> main = consumer("thread-1");
    main.subscribe(Pattern.compile("in(put|vitation)"));
    tell("poll", () -> poll(main, 10));
    KafkaProducer<String, String> task = producer("app-1");
    task.initTransactions();
    task.beginTransaction();
    for (TopicPartition each : List.of(repartition, changelog))
      for (int i = 0; i < 5; i++) task.send(new ProducerRecord<>(each.topic(), 0, "k" + i, "" + i));
    ConsumerGroupMetadata member = main.groupMetadata();
    task.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(10, "AgAAAAAA")), member);
    task.flush();
    for (IsolationLevel level : IsolationLevel.values())
      for (TopicPartition each : List.of(repartition, changelog))
        tell(level + " end of " + each, () -> get(admin.listOffsets(Map.of(each, OffsetSpec.latest()),
            new ListOffsetsOptions(level)).partitionResult(each)).offset());
    ListConsumerGroupOffsetsOptions stable = new ListConsumerGroupOffsetsOptions().requireStable(true).timeoutMs(700);
    tell("offsets while the transaction is open", () ->
        get(admin.listConsumerGroupOffsets("app").partitionsToOffsetAndMetadata()));
    tell("stable offsets", () -> get(admin.listConsumerGroupOffsets("app", stable).partitionsToOffsetAndMetadata()));
    tell("committed", () -> main.committed(Set.of(input), Duration.ofMillis(700)));
    tell("commit", () -> { task.commitTransaction(); return null; });
    tell("stable offsets", () -> get(admin.listConsumerGroupOffsets("app", stable).partitionsToOffsetAndMetadata()));
    tell("committed", () -> main.committed(Set.of(input)));
    tell("lag", () -> main.currentLag(input));

    DeleteRecordsResult deleted = admin.deleteRecords(Map.of(repartition, RecordsToDelete.beforeOffset(3),
        changelog, RecordsToDelete.beforeOffset(3), new TopicPartition("nobody", 0),
            RecordsToDelete.beforeOffset(1)));
    for (TopicPartition each : List.of(repartition, changelog))
      tell("delete records of " + each, () -> get(deleted.lowWatermarks().get(each)).lowWatermark());
    tell("delete more than there is", () -> get(admin.deleteRecords(Map.of(repartition,
        RecordsToDelete.beforeOffset(99))).all()));
    tell("earliest", () -> get(admin.listOffsets(Map.of(repartition,
        OffsetSpec.earliest())).partitionResult(repartition)).offset());

    KafkaConsumer<String, String> restore = new KafkaConsumer<>(settings("isolation.level", "read_committed",
        "auto.offset.reset", "none", "enable.auto.commit", false), new StringDeserializer(),
            new StringDeserializer());
    restore.assign(List.of(changelog, repartition));
    restore.seekToBeginning(List.of(changelog, repartition));
    tell("restored", () -> poll(restore, 7).size());
    tell("positions", () -> restore.position(changelog) + ", " + restore.position(repartition));
    restore.seek(repartition, 0);
    tell("poll from before the start", () -> { poll(restore, 1); return null; });

    tell("a generation that is over", () -> {
      task.beginTransaction();
      task.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(11)),
          new ConsumerGroupMetadata("app", member.generationId() - 1, member.memberId(), member.groupInstanceId()));
      return null;
    });
    tell("abort", () -> { task.abortTransaction(); return null; });
    tell("a member that is not there", () -> {
      task.beginTransaction();
      task.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(11)),
          new ConsumerGroupMetadata("app", member.generationId(), "nobody", Optional.empty()));
      return null;
    });
    tell("abort", () -> { task.abortTransaction(); return null; });
    tell("an instance that another has", () -> {
      task.beginTransaction();
      task.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(11)),
          new ConsumerGroupMetadata("app", member.generationId(), "nobody", Optional.of("thread-1")));
      return null;
    });
    tell("abort", () -> { task.abortTransaction(); return null; });

    task.beginTransaction();
    task.send(new ProducerRecord<>("app-store-changelog", 0, "k", "of a zombie"));
    task.flush();
    KafkaProducer<String, String> next = producer("app-1");
    tell("another takes over", () -> { next.initTransactions(); return null; });
    tell("the one before commits", () -> { task.commitTransaction(); return null; });
    tell("the one before sends", () -> { task.beginTransaction(); return null; });

    FenceProducersResult fenced = admin.fenceProducers(List.of("app-1", "never-seen"));
    tell("fence", () -> get(fenced.all()));
    tell("epochs", () -> get(fenced.epochId("app-1")) + ", " + get(fenced.epochId("never-seen")));
    tell("who was fenced", () -> {
      next.beginTransaction();
      next.send(new ProducerRecord<>("app-store-changelog", 0, "k", "of a zombie")).get(20, TimeUnit.SECONDS);
      return null;
    });
    tell("closes", () -> { next.close(Duration.ofSeconds(1)); return null; });

    KafkaConsumer<String, String> twin = consumer("thread-1");
    twin.subscribe(List.of("input"));
    tell("its twin polls", () -> { poll(twin, 1); return twin.assignment().size(); });
    tell("and it itself", () -> { for (int i = 0; i < 50; i++) main.poll(Duration.ofMillis(100)); return null; });
    tell("rebalance", () ->
    {
      twin.enforceRebalance("a probing rebalance");
      twin.poll(Duration.ofSeconds(2));
      return twin.assignment().size();
    });
    twin.close(CloseOptions.timeout(Duration.ofSeconds(1)));
    tell("members after it has closed", () ->
        get(admin.describeConsumerGroups(List.of("app")).all()).get("app").members().size());
    tell("remove a member", () -> {
      RemoveMembersFromConsumerGroupOptions options =
          new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("thread-1")));
      options.reason("a thread was removed");
      return get(admin.removeMembersFromConsumerGroup("app", options).all());
    });
    tell("members then", () -> get(admin.describeConsumerGroups(List.of("app")).all()).get("app").members().size());
    tell("reset", () -> get(admin.alterConsumerGroupOffsets("app", Map.of(input, new OffsetAndMetadata(0))).all()));
    tell("forget an offset", () -> get(admin.deleteConsumerGroupOffsets("app", Set.of(input)).all()));
    tell("delete the group", () -> get(admin.deleteConsumerGroups(List.of("app")).all()));
    tell("once more", () -> get(admin.deleteConsumerGroups(List.of("app")).all()));
    tell("transactions", () -> {
      Map<String, String> told = new TreeMap<>();
      for (TransactionListing each : get(admin.listTransactions().all())) told.put(each.transactionalId(),
          each.state().toString());
      return told;
    });
    tell("delete topics", () -> get(admin.deleteTopics(List.of("app-store-changelog",
        "app-by-key-repartition")).all()));
    tell("once more", () -> get(admin.deleteTopics(List.of("app-store-changelog")).all()));
    System.exit(0);
  }
}
