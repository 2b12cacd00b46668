"""What once failed, with the schedule that was enough. Kept for good."""

from __future__ import annotations

REGRESSIONS: dict[str, tuple[str, int, str]] = {
    "answers to overtaken fetches were appended": (
        "cluster",
        0,
        "0.499 deaf leader / 2 for=0.617 n=0\n0.701 deaf 3 / 1 for=0.904 n=0",
    ),
    "a move gave up all copies but one": (
        "cluster",
        54,
        "0.000 moves 1 for=0.000 n=0\n0.289 stop 2 for=1.254 n=0\n1.797 power leader for=0.015 n=0",
    ),
    "a follower whose directory had failed was proposed for the ISR in an endless loop": (
        "cluster",
        29,
        "0.000 moves 1 for=0.000 n=0\n"
        "0.427 power 1 for=0.209 n=3\n"
        "1.661 power 1 for=0.443 n=3\n"
        "1.793 power 1 for=1.179 n=1\n"
        "2.194 data-rot 3 for=0.859 n=4\n"
        "4.299 data-error 1 for=0.255 n=2",
    ),
    "a follower that had all records never heard that they are committed": (
        "cluster",
        488,
        "0.000 offsets 1 for=0.000 n=0\n"
        "0.123 freeze 2 for=2.542 n=0\n"
        "0.137 kill leader / 3 for=0.401 n=0\n"
        "3.024 freeze 3 for=0.538 n=0\n"
        "4.345 freeze 1 for=2.054 n=0\n"
        "4.358 kill leader / 1 for=0.306 n=0",
    ),
    "a replica left the ISR in the turn in which its leader committed what it had had before its power cut": (
        "cluster",
        11655,
        "1.523 freeze leader for=1.246 n=0\n"
        "3.028 data-rot 1 for=0.472 n=0\n"
        "4.120 cut leader / 1 2 3 for=1.651 n=0\n"
        "4.378 deaf 3 / 1 for=0.923 n=0",
    ),
    "a broker ended because a partition moved away from a directory that had failed": (
        "cluster",
        21313,
        "0.000 moves 1 for=0.000 n=0\n0.737 data-error leader for=0.068 n=4",
    ),
    "a replica whose first directory had failed never told that it lies in the other": (
        "cluster",
        31530,
        "0.000 moves 1 for=0.000 n=0\n"
        "1.739 kill leader for=0.015 n=0\n"
        "2.127 full-disk leader for=0.514 n=0\n"
        "3.763 data-error 2 for=1.321 n=4",
    ),
    "a killed broker counted as having all records though its disk had lost some": (
        "cluster",
        41136,
        "0.205 data-rot 2 for=0.072 n=0\n"
        "0.205 full-disk leader for=0.085 n=0\n"
        "2.133 cut leader / 1 2 3 for=0.083 n=0\n"
        "2.618 deaf 1 / 2 3 for=1.383 n=0\n"
        "3.486 freeze leader for=0.291 n=0\n"
        "3.492 data-rot leader for=0.024 n=4",
    ),
    "a safe batch that was damaged was cut off, and its producer remembered batches that were gone": (
        "cluster",
        600009,
        "0.000 offsets 1 for=0.000 n=0\n"
        "2.350 data-rot 1 for=0.236 n=2\n"
        "2.721 split leader / 1 3 for=2.351 n=0\n"
        "2.968 cut 1 / 2 3 for=1.214 n=0",
    ),
    "two changes that a node followed in one turn were taken for an unclean election": (
        "cluster",
        22215,
        "0.000 offsets 1 for=0.000 n=0\n"
        "0.197 reset leader / 1 2 3 for=0.000 n=0\n"
        "0.198 isolate leader / 1 3 for=0.862 n=0",
    ),
    "a follower could not begin where its leader's records were deleted up to the middle of a batch": (
        "cluster",
        6,
        "0.000 trims 1 for=0.000 n=0\n0.127 split leader for=0.908 n=0\n1.463 isolate leader / 1 2 for=0.120 n=0",
    ),
    "a broker ended because compaction read an offset that had rotted": (
        "cluster",
        97,
        "0.000 compaction 1 for=0.000 n=0\n"
        "1.950 power 3 for=1.322 n=0\n"
        "2.104 split leader / 2 for=1.449 n=0\n"
        "4.625 data-rot 1 for=0.079 n=3",
    ),
    "two requests of a fetch session were under way when the broker was registered anew": (
        "cluster",
        89,
        "0.000 deletions 1 for=0.000 n=0\n"
        "0.000 trims 1 for=0.000 n=0\n"
        "0.195 kill leader for=0.020 n=4\n"
        "0.314 isolate leader / 1 2 3 for=0.199 n=5\n"
        "0.716 kill leader for=0.048 n=0\n"
        "1.097 tear leader for=0.076 n=1",
    ),
    "a snapshot at the recovery point made a log look for markers in a segment that was torn": (
        "cluster",
        1,
        "0.000 trims 1 for=0.000 n=0\n"
        "0.205 isolate leader / 1 3 for=0.517 n=0\n"
        "0.245 kill 2 for=0.010 n=0\n"
        "0.698 kill leader for=0.431 n=0\n"
        "0.704 kill 3 for=0.010 n=0\n"
        "0.977 isolate leader / 2 3 for=0.354 n=0\n"
        "1.024 kill 1 for=0.010 n=0\n"
        "1.313 power leader for=0.599 n=0\n"
        "1.321 kill 2 for=0.010 n=0\n"
        "1.344 kill 1 for=0.010 n=0\n"
        "1.811 isolate leader / 1 3 for=0.714 n=0\n"
        "1.846 kill 3 for=0.010 n=0\n"
        "2.227 isolate leader / 1 2 for=0.571 n=0\n"
        "2.255 kill 1 for=0.010 n=0\n"
        "2.260 kill 2 for=0.010 n=0\n"
        "2.732 power leader for=0.767 n=0\n"
        "2.767 kill 2 for=0.010 n=0\n"
        "2.786 kill 3 for=0.010 n=0\n"
        "3.285 power leader for=0.435 n=0\n"
        "3.291 kill 1 for=0.010 n=0\n"
        "3.322 kill 3 for=0.010 n=0\n"
        "3.677 kill leader for=0.522 n=0\n"
        "3.718 kill 3 for=0.010 n=0\n"
        "3.986 power leader for=0.605 n=0\n"
        "3.994 kill 1 for=0.010 n=0\n"
        "4.434 isolate leader / 2 3 for=0.488 n=0\n"
        "4.485 kill 1 for=0.010 n=0\n"
        "4.681 kill leader for=0.513 n=0\n"
        "4.696 kill 1 for=0.010 n=0\n"
        "4.725 kill 3 for=0.010 n=0\n"
        "4.971 kill leader for=0.438 n=0\n"
        "4.989 kill 3 for=0.010 n=0\n"
        "5.283 kill leader for=0.368 n=0\n"
        "5.296 kill 3 for=0.010 n=0",
    ),
    "a power cut tore the topic id of a log, and the next topic of that name took it for its own": (
        "cluster",
        910110,
        "0.000 offsets 1 for=0.000 n=0\n"
        "0.000 deletions 1 for=0.000 n=0\n"
        "0.158 tear leader for=0.651 n=2\n"
        "0.572 tear leader for=0.107 n=1\n"
        "0.927 isolate leader / 1 2 3 for=0.342 n=2\n"
        "1.290 cut leader / 3 for=0.282 n=2\n"
        "1.627 kill leader for=0.291 n=0\n"
        "2.021 isolate leader / 1 2 3 for=0.099 n=5\n"
        "2.548 cut leader / 1 for=0.204 n=5\n"
        "2.817 cut leader / 1 for=0.033 n=2\n"
        "3.037 power leader for=0.063 n=1",
    ),
    "a directory came back with the log of a deleted topic, and the good one went offline": (
        "cluster",
        1105,
        "0.000 moves 1 for=0.000 n=0\n"
        "0.000 offsets 1 for=0.000 n=0\n"
        "0.000 deletions 1 for=0.000 n=0\n"
        "0.105 data-error 2 for=0.661 n=2",
    ),
    "a group got no new assignment until its coordinator's clock, put back, was where it had been": (
        "cluster",
        950623,
        "0.000 migrations 1 for=0.000 n=0\n3.080 clock 2 for=0.234 n=1670",
    ),
    "a deleted partition came back with a hole: its files were emptied before its new name was safe": (
        "cluster",
        2000402,
        "0.000 moves 1 for=0.000 n=0\n"
        "0.000 clients 1 for=0.000 n=0\n"
        "0.286 stop leader for=1.459 n=0\n"
        "1.705 stop leader for=0.776 n=0\n"
        "4.257 data-error leader for=0.310 n=0",
    ),
    "records for which a call had no time left had no outcome": (
        "cluster",
        2001090,
        "0.000 clients 1 for=0.000 n=0\n0.400 tear leader for=0.006 n=1",
    ),
    "a deposed coordinator's answer was taken for an expiry": (
        "cluster",
        2000634,
        "0.000 offsets 1 for=0.000 n=0\n0.000 expiries 1 for=0.000 n=0\n0.175 isolate 3 / 1 2 for=2.424 n=0",
    ),
    "a deletion by name that nobody waited for any more took the last topic": (
        "cluster",
        2001006,
        "0.000 deletions 1 for=0.000 n=0\n"
        "0.236 reset leader / 1 2 3 for=0.000 n=0\n"
        "0.927 isolate leader / 1 2 for=0.588 n=0\n"
        "1.782 isolate leader / 1 2 for=0.556 n=0\n"
        "2.663 reset leader / 1 2 3 for=0.000 n=0\n"
        "2.664 isolate leader / 1 3 for=0.549 n=0\n"
        "3.602 split leader / 1 for=0.536 n=0\n"
        "4.588 isolate leader / 1 3 for=0.589 n=0",
    ),
    "a replica that was empty forgot that its log begins in the middle of a batch": (
        "cluster",
        2030082,
        "0.000 trims 1 for=0.000 n=0\n"
        "0.311 isolate 3 / 1 2 for=2.336 n=0\n"
        "2.629 power 1 for=0.049 n=0\n"
        "0.833 rest 1 for=0.833 n=0\n"
        "2.500 rest 1 for=2.500 n=0\n"
        "2.500 rest 2 for=2.500 n=0\n"
        "0.833 rest 3 for=0.833 n=0\n"
        "2.500 rest 3 for=2.500 n=0\n"
        "3.333 rest 4 for=1.667 n=0\n"
        "2.500 rest 5 for=2.500 n=0",
    ),
    "a crash took records behind those that retention by size had let go, and those were missed": (
        "cluster",
        2050138,
        "0.000 offsets 1 for=0.000 n=0\n"
        "0.000 trims 1 for=0.000 n=0\n"
        "0.196 cut leader / 1 for=0.117 n=5\n"
        "0.298 isolate leader / 1 2 3 for=0.747 n=0\n"
        "0.382 isolate leader / 1 2 3 for=0.112 n=5\n"
        "0.752 tear leader for=0.035 n=5\n"
        "0.945 cut leader / 3 for=0.053 n=0\n"
        "1.378 kill leader for=0.406 n=5\n"
        "1.506 tear leader for=0.118 n=1\n"
        "1.955 kill leader for=0.244 n=0\n"
        "2.528 isolate leader / 1 2 3 for=0.445 n=0\n"
        "3.170 isolate leader / 1 2 3 for=0.527 n=5\n"
        "3.535 tear leader for=0.122 n=4\n"
        "2.500 rest 1 for=2.500 n=0\n"
        "2.500 rest 2 for=2.500 n=0\n"
        "2.500 rest 3 for=2.500 n=0\n"
        "3.333 rest 4 for=1.667 n=0\n"
        "3.333 rest 5 for=1.667 n=0",
    ),
    "who had lost power was taken for in sync before its broker was registered again": (
        "cluster",
        2051047,
        "0.000 offsets 1 for=0.000 n=0\n"
        "0.000 trims 1 for=0.000 n=0\n"
        "0.082 tear leader for=0.585 n=3\n"
        "0.426 isolate leader / 1 2 3 for=0.183 n=2\n"
        "0.551 isolate leader / 1 2 3 for=0.128 n=1\n"
        "0.989 freeze leader for=0.397 n=5\n"
        "1.080 isolate leader / 1 2 3 for=0.371 n=5\n"
        "1.407 freeze leader for=0.281 n=2\n"
        "1.856 kill leader for=0.026 n=1\n"
        "2.191 power leader for=0.341 n=5\n"
        "2.370 power leader for=0.103 n=2\n"
        "2.777 tear leader for=0.510 n=3\n"
        "3.045 freeze leader for=0.169 n=0\n"
        "3.337 cut leader / 1 2 for=0.269 n=1\n"
        "3.919 tear leader for=0.075 n=4\n"
        "2.500 rest 1 for=2.500 n=0\n"
        "3.333 rest 2 for=1.667 n=0\n"
        "0.833 rest 3 for=0.833 n=0\n"
        "2.500 rest 3 for=2.500 n=0\n"
        "3.333 rest 4 for=1.667 n=0\n"
        "2.500 rest 5 for=2.500 n=0",
    ),
    "a member that joined again committed what it had read before": (
        "cluster",
        2040272,
        "0.000 moves 1 for=0.000 n=0\n"
        "0.000 copies 1 for=0.000 n=0\n"
        "0.773 freeze 1 for=0.664 n=0\n"
        "0.790 kill leader / 1 for=0.368 n=0\n"
        "2.067 freeze 3 for=1.396 n=0\n"
        "2.076 stop leader / 2 for=0.279 n=0\n"
        "4.269 freeze 2 for=2.691 n=0\n"
        "4.282 stop leader / 3 for=0.310 n=0",
    ),
    "what a damaged disk had acknowledged was forgotten when the damage was found": (
        "core",
        102519,
        "0.879 freeze leader for=0.591 n=0\n"
        "0.892 sync-error 3 for=0.138 n=0\n"
        "0.976 freeze leader for=0.048 n=0\n"
        "1.134 cut 2 / 1 for=0.446 n=0\n"
        "2.171 freeze leader for=1.768 n=0\n"
        "2.430 rot 3 for=0.188 n=0",
    ),
    "a wiped voter was shut out after its second start": (
        "quorum",
        381,
        "0.456 wipe 3 for=0.258 n=0\n0.756 kill 3 for=0.288 n=0\n1.205 power 1 for=0.052 n=0",
    ),
    "a deletion by name that its client had given up took the topic that was made after it": (
        "cluster",
        52022,
        "0.000 moves 1 for=0.000 n=0\n"
        "0.000 deletions 1 for=0.000 n=0\n"
        "0.000 trims 1 for=0.000 n=0\n"
        "0.087 isolate leader / 2 3 for=0.628 n=0\n"
        "0.828 reset leader / 1 2 3 for=0.000 n=0\n"
        "0.829 isolate leader / 2 3 for=1.000 n=0\n"
        "2.126 split leader / 1 for=0.621 n=0\n"
        "3.007 isolate leader / 1 3 for=0.620 n=0\n"
        "3.963 isolate leader / 1 3 for=0.568 n=0\n"
        "4.839 reset leader / 1 2 3 for=0.000 n=0\n"
        "4.840 split leader / 1 for=0.737 n=0",
    ),
    "a coordinator that was replaced without knowing fenced a producer for its new epoch": (
        "cluster",
        1138837,
        "0.000 copies 1 for=0.000 n=0\n"
        "0.000 migrations 1 for=0.000 n=0\n"
        "0.092 split leader / 2 for=0.898 n=0\n"
        "1.332 reset leader / 1 2 3 for=0.000 n=0\n"
        "1.333 split leader for=0.980 n=0\n"
        "2.567 reset leader / 1 2 3 for=0.000 n=0\n"
        "2.568 isolate leader / 1 2 for=0.375 n=0\n"
        "3.408 split leader for=0.817 n=0\n"
        "4.602 reset leader / 1 2 3 for=0.000 n=0\n"
        "4.603 isolate leader / 1 2 for=0.854 n=0",
    ),
    "what a consumer had been taken away while it polled was handed out all the same": (
        "cluster",
        1171019,
        "0.000 offsets 1 for=0.000 n=0\n"
        "0.000 deletions 1 for=0.000 n=0\n"
        "0.000 transfers 1 for=0.000 n=0\n"
        "0.000 readers 1 for=0.000 n=0\n"
        "1.315 unreachable 2 for=0.853 n=4\n"
        "2.899 stop leader for=0.350 n=0",
    ),
    "a fetch whose records the disk did not give was never answered": (
        "cluster",
        6009,
        "4.134 data-error 3 for=0.491 n=10",
    ),
    "an offset that had rotted was cut off, and the high watermark with it": (
        "cluster",
        1250010,
        "0.000 copies 1 for=0.000 n=0\n"
        "0.000 versions 1 for=0.000 n=0\n"
        "0.324 split 1 for=1.084 n=0\n"
        "0.833 isolate 3 / 1 2 for=2.081 n=0\n"
        "0.837 data-wipe 1 for=0.178 n=2\n"
        "1.165 data-wipe leader for=0.295 n=2\n"
        "2.621 unreachable 2 for=0.477 n=5\n"
        "3.201 cut 2 / 1 3 for=0.243 n=0\n"
        "3.621 data-rot 2 for=0.060 n=1",
    ),
    "a partition that a static member had given up before it ended was nobody's": (
        "cluster",
        1292146,
        "0.000 pipeline 1 for=0.000 n=0\n"
        "0.000 consumers 1 for=0.000 n=0\n"
        "0.000 readers 1 for=0.000 n=0\n"
        "0.000 versions 1 for=0.000 n=0\n"
        "1.431 cut leader / 1 2 3 for=0.320 n=0\n"
        "2.327 data-wipe 1 for=0.522 n=0\n"
        "2.368 cut 1 / 3 for=0.068 n=0\n"
        "2.562 data-error 2 for=0.100 n=3\n"
        "3.726 data-wipe leader for=0.755 n=1\n"
        "4.106 data-error leader for=0.855 n=2",
    ),
    "the look at a log from outside met the disk that failed": (
        "cluster",
        1292724,
        "0.000 compaction 1 for=0.000 n=0\n"
        "3.993 data-error 2 for=0.341 n=8\n"
        "0.000 rest 1 for=5.000 n=0\n"
        "0.000 rest 2 for=5.000 n=0\n"
        "0.000 rest 3 for=5.000 n=0\n"
        "0.000 rest 4 for=5.000 n=0\n"
        "0.000 rest 5 for=5.000 n=0",
    ),
    "a broker that had its power back never answered over a connection from before": (
        "cluster",
        1293250,
        "0.000 moves 1 for=0.000 n=0\n"
        "0.000 offsets 1 for=0.000 n=0\n"
        "0.000 clients 1 for=0.000 n=0\n"
        "0.000 versions 1 for=0.000 n=0\n"
        "0.361 split 4 / 2 3 for=1.709 n=0\n"
        "1.123 data-rot 2 for=0.115 n=3\n"
        "2.148 data-rot 3 for=0.360 n=3\n"
        "3.759 split leader for=0.116 n=0\n"
        "4.814 tear leader for=0.193 n=4",
    ),
    "a new log that was to be compacted had a hole where the power had taken a segment": (
        "cluster",
        1295928,
        "0.000 migrations 1 for=0.000 n=0\n"
        "0.000 consumers 1 for=0.000 n=0\n"
        "0.710 deaf 1 / 2 for=0.970 n=0\n"
        "0.860 split 3 for=0.251 n=0\n"
        "1.203 kill leader for=0.017 n=0\n"
        "1.965 data-wipe leader for=0.170 n=1\n"
        "2.464 tear 2 for=0.803 n=5\n"
        "3.113 deaf 2 / 1 3 for=1.224 n=0\n"
        "3.232 deaf leader / 3 for=1.350 n=0",
    ),
    "a group became classic while a member waited for partitions, which nobody was given": (
        "cluster",
        1302988,
        "0.000 migrations 1 for=0.000 n=0\n"
        "0.168 isolate 3 / 1 2 for=2.416 n=0\n"
        "2.506 power 1 for=0.215 n=0\n"
        "2.514 kill 2 for=1.988 n=0",
    ),
    "a batch of unknown outcome was stored twice, with its first copy deleted between, and taken for a gap": (
        "cluster",
        1331431,
        "0.000 trims 1 for=0.000 n=0\n"
        "0.597 power leader for=0.794 n=0\n"
        "1.019 kill leader for=0.099 n=0\n"
        "1.444 power leader for=0.726 n=0\n"
        "1.485 kill 2 for=0.010 n=0\n"
        "1.664 kill leader for=0.431 n=0\n"
        "2.037 isolate leader / 1 2 for=0.391 n=0\n"
        "2.059 kill 2 for=0.010 n=0\n"
        "2.607 isolate leader / 2 3 for=0.451 n=0\n"
        "2.614 kill 2 for=0.010 n=0\n"
        "2.647 kill 1 for=0.010 n=0\n"
        "3.167 kill 1 for=0.010 n=0\n"
        "3.349 power leader for=0.156 n=0\n"
        "0.833 rest 1 for=0.833 n=0\n"
        "3.333 rest 1 for=1.667 n=0\n"
        "0.833 rest 2 for=0.833 n=0\n"
        "3.333 rest 2 for=1.667 n=0\n"
        "0.833 rest 3 for=0.833 n=0\n"
        "3.333 rest 3 for=1.667 n=0\n"
        "0.833 rest 4 for=0.833 n=0\n"
        "3.333 rest 4 for=1.667 n=0\n"
        "0.833 rest 5 for=0.833 n=0\n"
        "3.333 rest 5 for=1.667 n=0",
    ),
    "a first batch that one broker had refused and another stored was waited for when its producer had expired": (
        "cluster",
        1333286,
        "0.000 clients 1 for=0.000 n=0\n"
        "0.000 expiries 1 for=0.000 n=0\n"
        "0.678 kill leader for=0.118 n=0\n"
        "3.007 kill leader for=0.208 n=0\n"
        "1.667 rest 1 for=3.333 n=0\n"
        "0.833 rest 2 for=4.167 n=0\n"
        "0.833 rest 3 for=4.167 n=0\n"
        "0.833 rest 4 for=4.167 n=0\n"
        "1.667 rest 5 for=3.333 n=0",
    ),
}
"""What was wrong: the part of the simulator, the seed and the faults."""
