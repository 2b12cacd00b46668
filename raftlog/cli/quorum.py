"""`raftlog quorum`: who votes on the cluster's metadata, and changing that while it runs."""

from __future__ import annotations

from raftlog.cli.arguments import Verbs, not_negative
from raftlog.cli.connected import connected
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.cli.output import print_json, table
from raftlog.client.cluster import Member, Quorum
from raftlog.client.core.addresses import Address, parse_address
from raftlog.client.core.errors import Rejected
from raftlog.client.sync import SyncClient
from raftlog.wire.errors import ErrorCode

VERBS = Verbs("quorum", "The brokers that vote on the cluster's metadata.")
VERBS.add("status", "show leader, term and members")
VERBS.add("add", "give a broker a vote")
VERBS.add("remove", "take a broker's vote")
VERBS.add("transfer", "make another voter the leader")


def run(arguments: list[str]) -> int:
    verb, rest = VERBS.choose(arguments)
    return {"status": status, "add": add, "remove": remove, "transfer": transfer}[verb](rest)


def status(arguments: list[str]) -> int:
    options = VERBS.parser("status", "Show leader, term and members.", "raftlog quorum status --json").parse(arguments)
    with connected(options) as client:
        quorum = client.admin.describe_quorum()
    if options.json:
        print_json(document(quorum))
        return 0
    leader = f"broker {quorum.leader} leads" if quorum.leader >= 0 else "NO LEADER"
    print(f"{leader}, term {quorum.term}, committed {quorum.committed}\n")
    columns = ["NODE", "ROLE", "PEER ADDRESS", "LOG END", "LAG", "SILENT FOR"]
    heard = max(member.last_heard_ms for member in quorum.members)
    rows = [
        [
            member.node_id,
            role(quorum, member),
            str(member.address or "-"),
            member.log_end if member.log_end >= 0 else None,
            lag(quorum, member),
            "-" if member.last_heard_ms < 0 else f"{(heard - member.last_heard_ms) / 1000:.1f} s",
        ]
        for member in quorum.members
    ]
    print(table(columns, rows))
    return 0


def document(quorum: Quorum) -> dict[str, object]:
    return {
        "leader": quorum.leader,
        "term": quorum.term,
        "committed": quorum.committed,
        "members": [
            {
                "id": member.node_id,
                "role": role(quorum, member),
                "address": None if member.address is None else str(member.address),
                "log_end": member.log_end if member.log_end >= 0 else None,
                "lag": lag(quorum, member),
                "last_heard_ms": member.last_heard_ms if member.last_heard_ms >= 0 else None,
                "last_caught_up_ms": member.last_caught_up_ms if member.last_caught_up_ms >= 0 else None,
            }
            for member in quorum.members
        ],
    }


def role(quorum: Quorum, member: Member) -> str:
    if member.node_id == quorum.leader:
        return "leader"
    return "voter" if member.is_voter else "observer"


def lag(quorum: Quorum, member: Member) -> int | None:
    """Committed entries that the member has not got."""
    return None if member.log_end < 0 else max(0, quorum.committed - member.log_end)


def add(arguments: list[str]) -> int:
    parser = VERBS.parser(
        "add",
        "Give a broker that runs as an observer a vote. It catches up first.",
        "raftlog quorum add 4@127.0.0.1:9492",
    )
    parser.add_argument("voter", metavar="ID[@HOST:PORT]", help="its number, and where other voters reach it")
    options = parser.parse(arguments)
    number, at, where = options.voter.partition("@")
    if not number.isdecimal():
        raise UsageError(f"{options.voter!r} is not a voter", "write it like 4@127.0.0.1:9492")
    try:
        given = parse_address(where) if at else None
    except ValueError as error:
        raise UsageError(f"bad address: {error}", "write it like 4@127.0.0.1:9492") from error
    with connected(options) as client:
        address = given or address_of(client, int(number))
        client.admin.add_voter(int(number), address)
        quorum = client.admin.describe_quorum()
    return changed(options.json, quorum, f"broker {number} votes now")


def address_of(client: SyncClient, node_id: int) -> Address:
    """Where the quorum itself knows an observer."""
    members = {member.node_id: member for member in client.admin.describe_quorum().members}
    member = members.get(node_id)
    if member is None:
        raise CommandFailed(
            f"broker {node_id} does not follow the quorum",
            "start it with the others' --peers, --observer and --peer-listen; `raftlog quorum status` shows it then",
        )
    if member.address is None:
        raise CommandFailed(
            f"broker {node_id} listens for no peers",
            "restart it with --peer-listen HOST:PORT, or say where it listens: ID@HOST:PORT",
        )
    return member.address


def remove(arguments: list[str]) -> int:
    parser = VERBS.parser("remove", "Take a broker's vote; it goes on as an observer.", "raftlog quorum remove 4")
    parser.add_argument("voter", type=not_negative, metavar="ID", help="its number")
    options = parser.parse(arguments)
    with connected(options) as client:
        client.admin.remove_voter(options.voter)
        quorum = client.admin.describe_quorum()
    return changed(options.json, quorum, f"broker {options.voter} votes no more")


def transfer(arguments: list[str]) -> int:
    parser = VERBS.parser(
        "transfer", "Make another voter the leader, as before a stop.", "raftlog quorum transfer --to 2"
    )
    parser.add_argument("--to", type=not_negative, metavar="ID", help="which (default: the voter that is furthest)")
    options = parser.parse(arguments)
    with connected(options) as client:
        before = client.admin.describe_quorum()
        to = options.to if options.to is not None else furthest(before)
        if to == before.leader:
            return changed(options.json, before, f"broker {to} leads the quorum already")
        if to not in {member.node_id for member in before.voters}:
            voters = ", ".join(str(member.node_id) for member in before.voters)
            raise CommandFailed(f"broker {to} does not vote", f"the voters are {voters}", code="VOTER_NOT_FOUND")
        try:
            client.admin.take_over_quorum(to)
        except Rejected as error:
            if error.code != ErrorCode.ELECTION_NOT_NEEDED:
                raise
        quorum = client.admin.describe_quorum()
    return changed(options.json, quorum, f"broker {quorum.leader} leads the quorum, term {quorum.term}")


def furthest(quorum: Quorum) -> int:
    others = [member for member in quorum.voters if member.node_id != quorum.leader]
    if not others:
        raise CommandFailed("there is no other voter", "`raftlog quorum add ID@HOST:PORT` makes one")
    return max(others, key=lambda member: (member.log_end, member.last_heard_ms)).node_id


def changed(as_json: bool, quorum: Quorum, sentence: str) -> int:
    if as_json:
        print_json(document(quorum))
    else:
        print(sentence)
    return 0
