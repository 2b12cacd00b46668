"""`raftlog doctor`: looks for what makes clusters fail, and says what to do about it.

Addresses are resolved and dialled from here, as a client on this machine would do it: run it where the clients are.
"""

from __future__ import annotations

import ipaddress
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from raftlog.broker.descriptors import SIZE_MIN
from raftlog.cli.arguments import Parser, add_connection, add_json
from raftlog.cli.connected import STANDS_STILL, connected, stands_still
from raftlog.cli.failure import UsageError
from raftlog.cli.output import plural, print_json
from raftlog.cli.reach import Ailing, Look, ailing_partitions, look_at, settings_of, state_of, why_fenced
from raftlog.client.cluster import Quorum
from raftlog.client.core.addresses import Address, parse_addresses
from raftlog.client.sync import SyncClient
from raftlog.wire.messages.describe_cluster import DescribeClusterResponse
from raftlog.wire.messages.metadata import MetadataResponse

OK, WARNING, ERROR = "ok", "warning", "error"
LOOK_SECONDS_MAX = 5.0
CLOCK_SECONDS_MAX = 10.0
DESCRIPTORS_MIN = 65_536
"""What Kafka's own documents ask for: two files and more for each segment that is used, one for each connection."""
BACKLOG_MIN = 1024
TOPICS_SHOWN_MAX = 5

SAME_EVERYWHERE = (
    *("default.replication.factor", "num.partitions", "message.max.bytes", "auto.create.topics.enable"),
    *("log.retention.ms", "log.retention.bytes", "log.segment.bytes", "unclean.leader.election.enable"),
    *("broker.session.timeout.ms", "replica.lag.time.max.ms"),
)
"""Settings of brokers that one would look for in all of them when a topic is not as it should be."""


class Finding(NamedTuple):
    """`what` is the case, and `fix` is what to do."""

    level: str
    where: str
    what: str
    fix: str = ""


class Patient(NamedTuple):
    """All that is known of a cluster. `looks` and `settings` by broker."""

    bootstrap: Sequence[Look]
    cluster: DescribeClusterResponse
    quorum: Quorum
    metadata: MetadataResponse
    looks: Mapping[int, Look]
    settings: Mapping[int, Mapping[str, str]]
    ailing: Ailing


def run(arguments: list[str]) -> int:
    parser = Parser(
        prog="raftlog doctor",
        description="Look for what makes clusters fail, and say what to do. Run it where the clients are.",
        epilog="example:\n  raftlog doctor -b 10.0.0.1:9092",
    )
    add_json(parser, "print the findings as one line of JSON")
    add_connection(parser)
    options = parser.parse(arguments)
    seconds = min(options.timeout, LOOK_SECONDS_MAX)
    try:
        addresses = parse_addresses(options.bootstrap_servers)
    except ValueError as error:
        raise UsageError(f"bad address: {error}", "write -b HOST:PORT") from error
    bootstrap = look_at(addresses, seconds)
    findings = list(of_bootstrap(bootstrap))
    if any(look.problem is None for look in bootstrap):
        with connected(options) as client:
            patient = examine(client, bootstrap, seconds)
        findings += [finding for check in CHECKS for finding in check(patient)]
    findings += of_this_machine()
    if options.json:
        print_json([finding._asdict() for finding in findings])
    else:
        print(text_of(findings))
    return 1 if any(finding.level == ERROR for finding in findings) else 0


def text_of(findings: Sequence[Finding]) -> str:
    """What is wrong first, each with its fix on a line of its own."""
    lines = []
    for level in (ERROR, WARNING, OK):
        for finding in findings:
            if finding.level == level:
                lines.append(f"{level:<8} {finding.where}: {finding.what}")
                lines += [f"{'':<8} → {finding.fix}"] if finding.fix else []
    errors, warnings = (sum(finding.level == level for finding in findings) for level in (ERROR, WARNING))
    return "\n".join([*lines, "", f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"])


def examine(client: SyncClient, bootstrap: Sequence[Look], seconds: float) -> Patient:
    cluster, quorum = client.admin.describe_cluster(), client.admin.describe_quorum()
    brokers = sorted(cluster.brokers, key=lambda each: each.broker_id)
    looks = look_at([Address(each.host, each.port) for each in brokers], seconds)
    settings: dict[int, Mapping[str, str]] = {}
    for each, look in zip(brokers, looks, strict=True):
        if look.problem is None and (found := settings_of(client, each.broker_id)):
            settings[each.broker_id] = found
    by_broker = {each.broker_id: look for each, look in zip(brokers, looks, strict=True)}
    metadata = client.admin.metadata()
    ailing = ailing_partitions(client, metadata)
    return Patient(bootstrap, cluster, quorum, metadata, by_broker, settings, ailing)


# ── the way there ─────────────────────────────────────────────────────────────────────────────────────────────


def of_bootstrap(bootstrap: Sequence[Look]) -> Iterator[Finding]:
    reached = [look for look in bootstrap if look.problem is None]
    for look in bootstrap:
        if look.problem is not None:
            level = WARNING if reached else ERROR
            if "does not resolve" in look.problem:
                fix = "give another name with -b, or put this one into /etc/hosts or the name server"
            elif stands_still(look.problem):
                fix = f"{STANDS_STILL}; is a firewall in between?"
            else:
                fix = "start a broker there, or give another address with -b; is a firewall in between?"
            yield Finding(level, f"bootstrap {look.address}", look.problem, fix)
    ids = {look.cluster_id for look in reached}
    if len(ids) > 1:
        fix = "give -b addresses of one cluster only"
        yield Finding(ERROR, "bootstrap", f"the addresses belong to {len(ids)} clusters", fix)


def of_addresses(patient: Patient) -> Iterator[Finding]:
    """What each broker advertises, as this machine sees it."""
    from_afar = not any(map(is_of_this_machine, patient.bootstrap))
    fine = 0
    for broker in patient.cluster.brokers:
        look, where = patient.looks[broker.broker_id], f"broker {broker.broker_id}"
        if from_afar and is_of_this_machine(look):
            what = f"it advertises {look.address}, which means this machine to every client"
            fix = "start it with --advertise HOST:PORT (advertised.listeners) that its clients can reach"
            yield Finding(ERROR, where, what, fix)
        elif look.problem is not None:
            fix = "is it running? If so, --advertise (advertised.listeners) must be an address that clients can reach"
            yield Finding(ERROR, where, f"its advertised address: {look.problem}", fix)
        elif look.cluster_id != patient.cluster.cluster_id:
            what = f"at {look.address} answers a broker of cluster {look.cluster_id}"
            fix = f"two brokers advertise one address: correct --advertise of broker {broker.broker_id}"
            yield Finding(ERROR, where, what, fix)
        else:
            fine += 1
    if fine:
        yield Finding(OK, "addresses", f"{plural(fine, 'broker')} reached where they say")


def is_of_this_machine(look: Look) -> bool:
    return bool(look.resolved) and all(ipaddress.ip_address(each).is_loopback for each in look.resolved)


# ── brokers ───────────────────────────────────────────────────────────────────────────────────────────────────


def of_brokers(patient: Patient) -> Iterator[Finding]:
    quorum = patient.quorum
    if quorum.leader < 0:
        yield Finding(ERROR, "quorum", "it has no leader", "start the voters that are down, with their directories")
    known = [member for member in quorum.members if member.log_end >= 0]
    lags = {member.node_id: max(0, quorum.committed - member.log_end) for member in known}
    for broker in patient.cluster.brokers:
        look = patient.looks[broker.broker_id]
        if broker.is_fenced and look.problem is None:  # who is not there is told of as that
            why = why_fenced(look, lags.get(broker.broker_id), quorum.leader)
            fix = "what it leads is led by others; `raftlog cluster status` shows what is missing"
            yield Finding(ERROR, f"broker {broker.broker_id}", f"fenced: {why}", fix)
    voters = len(quorum.voters)
    if voters == 2 or (voters > 2 and voters % 2 == 0):
        fix = "`raftlog quorum add` or `remove` makes it an odd number"
        yield Finding(WARNING, "quorum", f"{voters} voters survive no more losses than {voters - 1}", fix)


def of_disks(patient: Patient) -> Iterator[Finding]:
    fine = 0
    for broker, look in sorted(patient.looks.items()):
        for disk in look.disks:
            where, state = f"broker {broker}", state_of(disk, patient.settings.get(broker, {}))
            if state == "offline":
                fix = "the broker's log says why; start it again when the disk is well"
                yield Finding(ERROR, where, f"directory {disk.path} is offline", fix)
            elif state != "ok":
                level = ERROR if state == "critical" else WARNING
                fix = "shorten retention.ms or retention.bytes, delete topics, or move partitions elsewhere"
                yield Finding(level, where, f"{disk.path} has {disk.free_percent:.1f} % of its disk left", fix)
            else:
                fine += 1
    if fine:
        yield Finding(OK, "disks", f"{fine} with room")


def of_versions(patient: Patient) -> Iterator[Finding]:
    """Brokers that speak different versions are of different versions."""
    kinds: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for broker, look in sorted(patient.looks.items()):
        if look.versions:
            kinds.setdefault(tuple(sorted(look.versions.items())), []).append(broker)
    if len(kinds) > 1:
        groups = " and ".join(",".join(map(str, brokers)) for brokers in kinds.values())
        fix = "finish the upgrade: mixed versions are for the time that it takes"
        yield Finding(WARNING, "versions", f"brokers {groups} run different versions", fix)


def of_clocks(patient: Patient) -> Iterator[Finding]:
    """Against this machine's, which may be the wrong one itself."""
    fine = 0
    for broker, look in sorted(patient.looks.items()):
        ahead = look.clock_ahead
        if ahead is not None and abs(ahead) > CLOCK_SECONDS_MAX:
            what = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
            fix = "let NTP set the clocks: retention and the times of records go by them"
            yield Finding(WARNING, f"broker {broker}", f"its clock is {what}", fix)
        else:
            fine += ahead is not None
    if fine:
        yield Finding(OK, "clocks", f"{plural(fine, 'broker')} and this machine agree")


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────


def of_settings(patient: Patient) -> Iterator[Finding]:
    for name in SAME_EVERYWHERE:
        values = {broker: found[name] for broker, found in sorted(patient.settings.items()) if name in found}
        if len(set(values.values())) > 1:
            told = ", ".join(f"{value or 'nothing'} on {broker}" for broker, value in values.items())
            fix = f"`raftlog config set --broker default {name}=…`, or the same line in each broker's file"
            yield Finding(WARNING, "settings", f"{name} differs: {told}", fix)
    brokers = len(patient.cluster.brokers)
    for broker, found in sorted(patient.settings.items()):
        for what, fix in contradictions(found, brokers):
            yield Finding(WARNING, f"broker {broker}", what, fix)


def contradictions(found: Mapping[str, str], brokers: int) -> Iterator[tuple[str, str]]:
    """Settings of one broker that do not go together: what, and the fix."""

    def number(name: str) -> int:
        text = found.get(name, "")
        return int(text) if text.lstrip("-").isdecimal() else 0

    replicas, in_sync = number("default.replication.factor"), number("min.insync.replicas")
    if brokers > 1 and replicas == 1:
        yield "default.replication.factor=1: topics that are made without a number are lost with one disk", (
            "set default.replication.factor=3"
        )
    if 1 < replicas <= in_sync:
        yield f"min.insync.replicas={in_sync} of default.replication.factor={replicas}: one loss stops writing", (
            f"set min.insync.replicas={replicas - 1}"
        )
    for name, when_not_given in (("default.replication.factor", 0), ("offsets.topic.replication.factor", 3)):
        # What is not given is no more than the brokers there are.
        if number(name) > brokers and number(name) != when_not_given:
            yield f"{name}={number(name)} with {plural(brokers, 'broker')}", f"lower {name}, or add brokers"
    if number("replica.lag.time.max.ms") < 2 * number("replica.fetch.wait.max.ms"):
        yield "replica.lag.time.max.ms is less than two of replica.fetch.wait.max.ms: idle followers leave ISRs", (
            "raise replica.lag.time.max.ms"
        )
    if number("message.max.bytes") > number("socket.request.max.bytes"):
        yield "message.max.bytes is more than a request may have (socket.request.max.bytes)", (
            "raise socket.request.max.bytes"
        )
    if found.get("unclean.leader.election.enable") == "true":
        yield "unclean.leader.election.enable=true: acknowledged records may be lost", "set it to false"


def of_topics(patient: Patient) -> Iterator[Finding]:
    partitions = [(topic, each) for topic in patient.metadata.topics for each in topic.partitions]
    offline = [
        topic.name or ""
        for topic, each in partitions
        if each.leader_id < 0 or (topic.name or "", each.partition_index) in patient.ailing.offline_logs
    ]
    behind = [topic for topic, _ in patient.ailing.under_replicated]
    too_few = [topic for topic, _ in patient.ailing.below_min_isr]
    for names, what, level in (
        (offline, "offline", ERROR),
        (too_few, "below min.insync.replicas", ERROR),
        (behind, "under-replicated", WARNING),
    ):
        if names:
            fix = "`raftlog cluster status` shows which, and which broker is missing"
            topics = ", ".join(sorted(set(names))[:TOPICS_SHOWN_MAX])
            yield Finding(level, "partitions", f"{len(names)} {what}, of topics like {topics}", fix)
    if not (offline or too_few or behind):
        yield Finding(OK, "partitions", f"{len(partitions)}, all of them led and in sync")


CHECKS: tuple[Callable[[Patient], Iterator[Finding]], ...] = (
    *(of_addresses, of_brokers, of_disks, of_versions, of_clocks, of_settings, of_topics),
)


# ── this machine ──────────────────────────────────────────────────────────────────────────────────────────────


def of_this_machine(proc: Path = Path("/proc")) -> list[Finding]:
    """What a broker would meet that is started here."""
    findings = []
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_MIN:
        fix = f"for brokers: LimitNOFILE={DESCRIPTORS_MIN} in systemd, or ulimit -Hn {DESCRIPTORS_MIN}"
        findings.append(Finding(WARNING, "this machine", f"a process may open {hard:,} files", fix))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hard != resource.RLIM_INFINITY and hard < SIZE_MIN:
        fix = "for brokers: LimitFSIZE=infinity in systemd, or ulimit -Hf unlimited"
        findings.append(Finding(ERROR, "this machine", f"a file may have {hard:,} bytes: no broker starts", fix))
    backlog = proc / "sys/net/core/somaxconn"
    if backlog.exists() and (found := int(backlog.read_text())) < BACKLOG_MIN:
        fix = f"for brokers: sysctl net.core.somaxconn={BACKLOG_MIN}"
        what = f"only {found} connections may wait to be accepted (net.core.somaxconn)"
        findings.append(Finding(WARNING, "this machine", what, fix))
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError as error:
        fix = "put it into /etc/hosts or the name server, or start brokers with addresses in place of names"
        what = f"its own name {socket.gethostname()} does not resolve: {error.strerror}"
        findings.append(Finding(WARNING, "this machine", what, fix))
    if not findings:
        findings.append(Finding(OK, "this machine", f"limits and names are fine (Python {sys.version.split()[0]})"))
    return findings
